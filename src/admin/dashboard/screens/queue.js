// Waiting requests by model, with their positions, waiting times and reasons.
import { html, useMemo } from '../lib/view.js';
import { byName, live, poolNow, ticks, useNow } from '../lib/live.js';
import { clean, count, countdown, hourMinute, short, span } from '../lib/text.js';
import { Empty, Head, ModelLink, Name, State, progressOf } from '../parts/bits.js';

export const STAGES = { fetching: 'its weights are downloaded', starting: 'its engine starts', loading: 'its weights are loaded', warming: 'its engine warms up', waiting: 'there is not enough free memory yet', ready: 'all its slots are in use',
  draining: 'its last replica leaves first', cooling: 'a failed load cools down', cold: 'its load has not started', asleep: 'it wakes up' };

/** The current waiting time, extrapolated from the last update. */
const waited = (it, now) => it.waited_ms + Math.max(0, ticks() - live.get().queue_at) + 0 * now;
const remains = (it, now) => Math.max(0, it.expected_ms - (ticks() - live.get().queue_at) + 0 * now);

/** The reason why the model is not ready: a download, replicas that must leave, or its own engine. */
export function waitsFor(name) {
  const model = byName.get(name);
  if (!model) return '';
  const leaving = [];
  if (model.state === 'waiting' || model.replicas.some(it => it.state === 'planned')) {
    const devices = new Set(model.replicas.flatMap(it => it.devices.map(share => share.device)));
    for (const other of live.get().models) {
      for (const replica of other.replicas) {
        const here = devices.size === 0 || replica.devices.some(share => devices.has(share.device));
        if (here && other.model !== name && ['draining', 'stopping'].includes(replica.state)) leaving.push(`${short(other.model, 40)} (${replica.replica}) to leave${replica.in_flight ? `: ${count(replica.in_flight, 'request')} in flight` : ''}`);
      }
    }
  }
  if (leaving.length) return `for ${leaving.slice(0, 3).join(', ')}`;
  const planned = model.replicas.find(it => it.state === 'planned');
  return planned ? clean(planned.reason) : '';
}

export function WaitingRow({ of: it }) {
  const now = useNow(1000);
  return html`<li class="waiting-row"><${ModelLink} of=${it.model} most=${40} /><span class="figure soft">${countdown(waited(it, now))}</span>
    <span class="soft waiting-who">${short(it.group ? `${it.group}/${it.key}` : it.key, 40)}, place ${it.position}</span></li>`;
}

export function Queue() {
  const { queue, models } = live.use();
  const now = useNow(1000);
  const groups = useMemo(() => {
    const found = new Map();
    for (const it of queue.waiting) found.set(it.model, [...found.get(it.model) ?? [], it]);
    return [...found].sort(([one], [other]) => (byName.get(other)?.priority ?? 0) - (byName.get(one)?.priority ?? 0));
  }, [queue, models]);
  return html`<${Head} title="Queue" about=${`${count(queue.waiting.length, 'request')} waiting for ${count(groups.length, 'model')}, ${count(queue.orders.length, 'order')} running`} />
    ${queue.waiting.length === 0 && queue.orders.length === 0 && html`<${Empty} icon="queue" title="No request waits">A request for a model that is not ready waits here until the model is, with its place and the time it is expected to take.<//>`}
    ${queue.orders.length > 0 && html`<section class="block-section"><h2>Administrators’ orders</h2><div class="table-frame"><table class="plain-table"><thead><tr><th>Order</th><th>What</th><th>Model</th><th class="right">Running for</th></tr></thead>
      <tbody>${queue.orders.map(order => html`<tr key=${order.order}><td class="figure">${order.order}</td><td>${order.what}</td><td class="fill">${order.model && html`<${ModelLink} of=${order.model} />`}</td><td class="right figure">${span(order.since_ms + ticks() - live.get().queue_at)}</td></tr>`)}</tbody></table></div></section>`}
    ${groups.map(([name, list]) => html`<${Group} key=${name} name=${name} list=${list} now=${now} />`)}`;
}

function Group({ name, list, now }) {
  const model = byName.get(name), progress = model && progressOf(model), what = waitsFor(name);
  const stage = STAGES[list[0].stage] ?? clean(list[0].stage);
  return html`<section class="block-section queue-group"><div class="queue-head"><h2><${ModelLink} of=${name} /></h2>${model && html`<${State} of=${model.state} /><span class="prio">P${model.priority}</span>`}
      <span class="soft">${count(list.length, 'request')}</span></div>
    <p class="queue-why">Waits because ${stage}${progress?.rest ? ` (${progress.rest})` : ''}.${what && html` <span class="soft">${what[0].toUpperCase() + what.slice(1)}.</span>`}</p>
    ${progress?.percent != null && html`<progress max="100" value=${progress.percent} aria-label=${`Loading of ${short(name, 60)}`}></progress>`}
    <div class="table-frame"><table class="plain-table"><thead><tr><th class="place">Place</th><th>Key</th><th class="right">Waiting for</th><th class="right">Expected in</th><th class="right wide-only">At</th><th class="wide-only">Ticket</th></tr></thead>
    <tbody>${list.slice(0, 200).map(it => html`<tr key=${it.ticket}><td class="place figure">${it.position}</td><td class="fill">${html`<${Name} of=${it.key} swatch=${false} most=${50} />`}</td>
      <td class="right figure">${countdown(waited(it, now))}</td><td class="right figure">${!it.expected_ms ? '—' : remains(it, now) > 0 ? countdown(remains(it, now)) : html`<span class="warn" title="It has taken longer than the last loads">late</span>`}</td><td class="right figure wide-only">${it.expected_ms && remains(it, now) > 0 ? hourMinute(poolNow() + remains(it, now)) : '—'}</td><td class="figure soft wide-only">${it.ticket}</td></tr>`)}</tbody></table></div>
    ${list.length > 200 && html`<p class="soft">${list.length - 200} more are not shown.</p>`}</section>`;
}
