// A device's memory as a bar to scale: one block for each replica, in the colour of its model.
import { html } from '../lib/view.js';
import { bytes, clean, count, countdown, short, span } from '../lib/text.js';
import { PART_WORDS, parts, replicaOf } from '../lib/device.js';
import { byName, poolNow, useNow } from '../lib/live.js';
import { modelLink } from '../lib/route.js';
import { createStore } from '../lib/store.js';
import { explains } from './tip.js';
import { Name, ofModel, stateTone, stateWord } from './bits.js';

/** The model under the pointer, highlighted on all devices. */
export const pointed = createStore({ model: null });

/** The remaining fraction of the keep-hot time. */
function left(part) {
  const replica = replicaOf(part), model = byName.get(part.model);
  if (!replica?.expires_at || !model) return null;
  const ms = Date.parse(replica.expires_at) - poolNow();
  return { ms, share: Math.max(0, Math.min(1, ms / (model.keep_hot_ms || 1))) };
}

export function describe(part, device) {
  if (part.kind !== 'replica') return `${PART_WORDS[part.kind][0]}: ${bytes(part.bytes)} of ${device.device}`;
  const replica = replicaOf(part), model = byName.get(part.model), time = left(part);
  const words = [`${short(part.model)}, ${bytes(part.bytes)}`, ...moreWords(part, replica, model, time)];
  return words.filter(Boolean).join(', ');
}

/** Details that the block only shows graphically, for screen readers. */
function moreWords(part, replica, model, time) {
  return [part.replica, stateWord(part.state), model && `priority ${model.priority}`, replica?.in_flight ? `${replica.in_flight} in flight` : '',
    model?.always_hot ? 'always hot' : time ? `leaves in ${countdown(time.ms)} if unused` : ''].filter(Boolean);
}

function Explanation({ part, device }) {
  useNow(1000);
  if (part.kind !== 'replica') {
    const [word, why] = PART_WORDS[part.kind];
    return html`<p class="tip-title">${word} <span class="figure">${bytes(part.bytes)}</span></p><p class="soft">${why}</p>`;
  }
  const replica = replicaOf(part), model = byName.get(part.model), time = left(part);
  const rows = [
    ['State', `${stateWord(part.state)}${replica?.percent != null ? ` ${replica.percent} %` : ''}${replica?.stage ? `, ${clean(replica.stage_words || replica.stage)}` : ''}`],
    ['Priority', model && `${model.priority} (${model.priority_from})${model.always_hot ? ', always hot' : ''}`],
    ['Reserved', bytes(part.bytes)],
    ['Measured', part.measured_bytes !== null && bytes(part.measured_bytes)],
    ['In flight', replica && `${replica.in_flight}${model?.waiting ? `, ${model.waiting} waiting` : ''}`],
    ['Keep-hot', time ? `leaves in ${countdown(time.ms)} of ${span(model.keep_hot_ms)}` : model?.always_hot ? 'stays: priority 2 or more' : replica?.leased_until_at && `leased: protected for ${countdown(Date.parse(replica.leased_until_at) - poolNow())}`],
    ['Why', replica?.reason && clean(replica.reason)],
  ];
  return html`<p class="tip-title"><${Name} of=${part.model} most=${60} /> <span class="figure soft">${part.replica} on ${device.device}</span></p>
    <dl class="tip-rows">${rows.filter(([, value]) => value).map(([word, value]) => html`<dt>${word}</dt><dd>${value}</dd>`)}</dl>`;
}

function Countdown({ part }) {
  useNow(1000);
  const time = left(part);
  if (!time) return null;
  return html`<span class="block-time figure" aria-hidden="true">${countdown(time.ms)}</span><span class="block-left" style=${{ '--left': time.share }}></span>`;
}

/** `still`: a picture of a plan or of the past, without countdowns and links. `gone`: replicas that leave in it. */
export function Block({ part, device, still, gone }) {
  const size = { '--part': part.bytes / device.total_bytes };
  if (part.kind !== 'replica') {
    return html`<span class="block" data-kind=${part.kind} style=${size} tabindex=${still ? undefined : 0} role="img" aria-label=${describe(part, device)} ...${explains(() => html`<${Explanation} part=${part} device=${device} />`)}></span>`;
  }
  const model = byName.get(part.model), replica = replicaOf(part), isPointed = pointed.use(it => it.model === part.model);
  const filled = part.measured_bytes === null ? null : Math.min(1, part.measured_bytes / part.bytes);
  const text = short(part.model, 120), name = text.slice(text.lastIndexOf('/') + 1);
  const body = html`${filled !== null && html`<span class="block-fill" style=${{ '--filled': filled }}></span>`}
    <span class="block-words"><span class="block-name">${name}</span><span class="block-more"><span class="figure">${bytes(part.bytes)}</span>${
      !still && model && html`<span class=${`prio ${model.always_hot ? 'hot' : ''}`}>P${model.priority}</span>`}${
      !still && replica?.in_flight > 0 && html`<span class="figure">${replica.in_flight} in flight</span>`}</span></span>
    ${!still && part.state !== 'ready' && html`<span class="block-state" data-tone=${stateTone(part.state)}>${stateWord(part.state)}${replica?.percent != null ? ` ${replica.percent} %` : ''}</span>`}
    ${!still && part.state === 'ready' && html`<${Countdown} part=${part} />`}${part.isNew && html`<span class="block-state" data-tone="good">new</span>`}${
      gone?.has(part.replica) && html`<span class="block-state" data-tone="bad">leaves</span>`}`;
  const attributes = { class: 'block', 'data-kind': 'replica', 'data-state': part.state, 'data-pointed': isPointed ? 'yes' : undefined,
    'data-gone': gone?.has(part.replica) ? 'yes' : undefined, 'data-new': part.isNew ? 'yes' : undefined, style: { ...size, ...ofModel(part.model) } };
  if (still) return html`<span ...${attributes} role="img" aria-label=${`${short(part.model)}, ${bytes(part.bytes)}${part.isNew ? ', new' : gone?.has(part.replica) ? ', leaves' : ''}`}>${body}</span>`;
  const tip = explains(() => html`<${Explanation} part=${part} device=${device} />`);
  return html`<a ...${attributes} href=${modelLink(part.model)} ...${tip}
    onMouseEnter=${event => { pointed.set({ model: part.model }); tip.onMouseEnter(event); }} onMouseLeave=${() => { pointed.set({ model: null }); tip.onMouseLeave(); }}>${body}<span class="quiet">, ${moreWords(part, replica, model, left(part)).join(', ')}</span></a>`;
}

export function Bar({ device, still, gone, height }) {
  return html`<div class=${`bar ${device.cordon ? 'cordoned' : ''}`} style=${height && { '--bar': `${height}px` }} role=${still ? 'img' : 'group'}
    aria-label=${`${device.device}: ${bytes(device.free_bytes)} free of ${bytes(device.total_bytes)}, ${count(device.owners.length, 'replica')}`}>${
    parts(device).map((part, nth) => html`<${Block} key=${still ? nth : part.replica ?? part.kind} part=${part} device=${device} still=${still} gone=${gone} />`)}</div>`;
}
