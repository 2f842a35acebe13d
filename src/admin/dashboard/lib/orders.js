// Orders to the pool and their results. An order continues if its page is closed; a message reports the outcome.
import { post, request } from './api.js';
import { clean, count, short, span } from './text.js';
import { link } from './route.js';
import { tell } from '../parts/messages.js';

const fail = (what, failure) => tell(what, { tone: 'bad', more: failure.message });

const names = list => list.map(it => `${short(it.model, 40)} (${it.replica})`).join(', ');

/** Loads in the background; `expected` is the confirmed plan. */
export async function load(order, expected) {
  const name = short(order.model, 50), id = `load-${order.model}`;
  tell(`Loading ${name}`, { tone: 'busy', id, more: expected?.expected_seconds ? `about ${span(expected.expected_seconds * 1000)}` : null });
  try {
    const answer = await post('/admin/load', order, { timeout: 0 });
    const planned = new Set((expected?.victims ?? []).map(it => it.replica)), really = answer.evicted ?? [];
    const isAsPlanned = !expected || really.length === planned.size && really.every(it => planned.has(it.replica));
    const where = answer.ready_replicas.map(it => it.devices.map(share => share.device).join(' + ')).join(', ');
    const more = [really.length ? `${isAsPlanned ? 'Evicted' : 'The pool had changed: evicted'} ${names(really)}.` : expected && planned.size ? 'The pool had changed: nothing had to leave.' : '',
      answer.shortfall ? clean(answer.shortfall) : ''].filter(Boolean).join(' ');
    tell(answer.status === 'partial' ? `${name}: ${answer.ready_replicas.length} of ${count(answer.wanted_replicas, 'replica')} ready` : `${name} is ready${where ? ` on ${where}` : ''}`,
      { id, tone: answer.status === 'partial' ? 'bad' : 'good', more: more || `after ${span(answer.took_ms)}` });
  } catch (failure) {
    tell(`${name} was not loaded`, { id, tone: 'bad', more: failure.message, link: ['Its log', link('logs', { model: order.model })] });
  }
}

export async function unload(model, { replica, now } = {}) {
  const name = short(model, 50), id = `unload-${model}`;
  tell(`Unloading ${name}`, { tone: 'busy', id, more: now ? null : 'Requests in flight may finish.' });
  try {
    const answer = await post('/admin/unload', { model, ...(replica && { replica }), ...(now && { now }) }, { timeout: 0 });
    tell(`${name} is unloaded`, { id, more: `${count(answer.unloaded.length, 'replica')}, after ${span(answer.took_ms)}` });
  } catch (failure) {
    tell(`${name} was not unloaded`, { id, tone: 'bad', more: failure.message });
  }
}

/** Sets priority, keep-hot or lease; null restores the catalogue's value. Resolves to true on success. */
export async function change(model, patch, words, undo = null) {
  try {
    await request('PATCH', '/admin/models', { query: { model }, body: patch });
    tell(words, { action: undo && ['Undo…', undo] });
    return true;
  } catch (failure) {
    fail(`${short(model, 50)} was not changed`, failure);
    return false;
  }
}

export const plan = (order, signal) => post('/admin/plan', order, { signal });

export const whatIf = (assumed, signal) => post('/admin/what-if', assumed, { signal });

/** Returns `evict tiny-chat` or `evict 3 replicas`; nothing for an empty list. */
export const counted = (verb, list) => list.length === 0 ? '' : `${verb} ${list.length === 1 ? short(list[0].model, 30) : count(list.length, 'replica')}`;

/** A button label with an order and its effects: `Set priority 2, load tiny-chat and evict tiny-code`. */
export function withEffects(order, effects) {
  const all = [order, ...effects.filter(Boolean)];
  return all.length === 1 ? order : `${all.slice(0, -1).join(', ')} and ${all.at(-1)}`;
}

/** Identifies a preview by the replicas that leave and the loads that begin. */
export const signOfEffects = found => JSON.stringify([found.leaving.map(one => one.replica).sort(), found.loads.map(one => [one.model, one.devices])]);

/** Identifies a plan by its placement and its victims. */
export const signOf = it => JSON.stringify([it.feasible, it.placement, it.victims.map(victim => victim.replica).sort(), it.wakes]);
