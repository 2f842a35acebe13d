// Small components used on every screen: names, states, times, keyboard keys, buttons.
import { html, useEffect, useRef } from '../lib/view.js';
import { hue } from '../lib/colour.js';
import { ago, clean, clock, short, span, wholeTime } from '../lib/text.js';
import { modelLink } from '../lib/route.js';
import { useNow } from '../lib/live.js';
import { Icon } from './icons.js';

export const LONGEST = 80;

/** The colour of a model, for the stylesheet. */
export const ofModel = name => ({ '--hue': hue(name) });

/** Number of letters at the end of a name that are never cut, because they distinguish variants of a model. */
const TAIL = 9;

/** A name, with a less prominent organisation. In a narrow space it is cut before its last letters; the title has the full name. */
export function Name({ of: name, most = LONGEST, swatch = true }) {
  const text = short(name, Math.max(most, LONGEST)), cut = text.lastIndexOf('/') + 1, end = text.length - cut > 2 * TAIL ? text.length - TAIL : text.length;
  return html`<span class="name" title=${text.length > 28 || text !== name ? clean(name).slice(0, 6000) : undefined}>${
    swatch && html`<span class="swatch" style=${ofModel(name)} aria-hidden="true"></span>`}<span class=${end < text.length ? 'name-text with-tail' : 'name-text'}><span class="name-start">${
    cut > 0 && html`<span class="name-org">${text.slice(0, cut)}</span>`}<span>${text.slice(cut, end)}</span></span>${end < text.length && html`<span>${text.slice(end)}</span>`}</span></span>`;
}

export const ModelLink = ({ of: name, ...more }) => html`<a class="model-link" href=${modelLink(name)}><${Name} of=${name} ...${more} /></a>`;

const STATES = {
  ready: ['good', 'Ready'], loading: ['busy', 'Loading'], waiting: ['busy', 'Waiting for memory'], fetching: ['busy', 'Downloading'], cold: ['none', 'Cold'],
  draining: ['going', 'Draining'], asleep: ['sleep', 'Asleep'], cooling: ['bad', 'Cooling down'], quarantined: ['bad', 'Quarantined'], broken: ['bad', 'File broken'],
  launching: ['busy', 'Loading'], planned: ['busy', 'Planned'], stopping: ['going', 'Stopping'],
};
export const stateWord = state => STATES[state]?.[1] ?? state;
export const stateTone = state => STATES[state]?.[0] ?? 'none';

/** A sign and a word, readable without distinguishing colours. */
export function State({ of: state, more }) {
  return html`<span class="state" data-tone=${stateTone(state)}><span class="state-sign" aria-hidden="true"></span><span>${stateWord(state)}</span>${
    more && html`<span class="soft">${more}</span>`}</span>`;
}

/** The progress of a model's load: `weights, 45 %, about 8 s left`; `rest` is without the stage. */
export function progressOf(model) {
  const fetch = model.weights?.fetch;
  if (fetch) {
    const rest = [fetch.percent !== null && `${fetch.percent} %`, fetch.left_ms !== null && `${span(fetch.left_ms)} left`].filter(Boolean);
    return { percent: fetch.percent, rest: rest.join(', '), words: [clean(fetch.words), ...rest].filter(Boolean).join(', ') };
  }
  const replica = model.replicas.find(it => it.state === 'launching') ?? model.replicas.find(it => it.state === 'planned');
  if (!replica) return null;
  const rest = [replica.percent !== null && `${replica.percent} %`, replica.expected_ms ? `about ${span(replica.expected_ms)} left` : replica.expected_ms === 0 ? 'longer than the last load' : ''].filter(Boolean);
  return { percent: replica.percent, rest: rest.join(', '), words: [replica.stage && clean(replica.stage_words || replica.stage), ...rest].filter(Boolean).join(', ') };
}

/** A time as its age. The title has it in all zones. */
export function Ago({ at, none = 'never' }) {
  const now = useNow(at ? 10_000 : 3_600_000);
  if (!at) return html`<span class="faint">${none}</span>`;
  return html`<time datetime=${at} title=${wholeTime(at)}>${ago(at, now)}</time>`;
}
export const Clock = ({ at }) => html`<time datetime=${at} title=${wholeTime(at)} class="figure">${clock(at)}</time>`;

export const Keys = ({ of: keys }) => html`<span class="keys" aria-hidden="true">${keys.split(' ').map(key => html`<kbd>${key}</kbd>`)}</span>`;

export function Button({ icon, kind = '', busy, children, ...more }) {
  return html`<button type="button" class=${`button ${kind}`} aria-busy=${busy ? 'true' : undefined} ...${more} disabled=${more.disabled || busy}>${
    icon && html`<${Icon} name=${icon} />`}${children && html`<span>${children}</span>`}</button>`;
}

export function IconButton({ icon, label, ...more }) {
  return html`<button type="button" class="icon-button" aria-label=${label} title=${label} ...${more}><${Icon} name=${icon} /></button>`;
}

export function Empty({ icon = 'pool', title, children }) {
  return html`<div class="empty"><${Icon} name=${icon} size=${22} /><p class="empty-title">${title}</p>${children && html`<p class="soft">${children}</p>`}</div>`;
}

export const Loading = ({ what = 'Reading' }) => html`<p class="loading soft" role="status">${what}…</p>`;

export function Problem({ failure, again }) {
  return html`<div class="problem" role="alert"><${Icon} name="alert" /><div><p>${clean(failure.message)}</p>${
    failure.code && html`<p class="soft figure">${failure.status} ${failure.code}</p>`}${again && html`<p><${Button} onClick=${again}>Try again<//></p>`}</div></div>`;
}

/** The heading of a screen, with its actions. */
export function Head({ title, children, about }) {
  return html`<header class="head"><div><h1>${title}</h1>${about && html`<p class="soft">${about}</p>`}</div><div class="head-tools">${children}</div></header>`;
}

/** A choice between a few visible options. */
export function Choice({ label, value, of: options, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>${options.map(([name, word, icon]) => html`<button type="button" key=${name}
    aria-pressed=${String(value === name)} onClick=${() => onChange(name)}>${icon && html`<${Icon} name=${icon} />`}<span>${word}</span></button>`)}</div>`;
}

export function Search({ label, value, onInput, id = 'search' }) {
  return html`<label class="search"><${Icon} name="search" /><span class="quiet">${label}</span><input id=${id} type="search" autocomplete="off" spellcheck=${false}
    placeholder=${label} value=${value} onInput=${event => onInput(event.currentTarget.value)} data-search /></label>`;
}

export const Fact = ({ label, children }) => html`<div class="fact"><dt>${label}</dt><dd>${children}</dd></div>`;

/** Receives the focus when it appears. */
export function useFocus(when = true) {
  const it = useRef(null);
  useEffect(() => { if (when) it.current?.focus(); }, [when]);
  return it;
}

/** Falls back to an older method, because browsers have no clipboard API over plain HTTP. */
export async function copyText(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* Below is the older way. */ }
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'quiet';
  (document.querySelector('dialog[open]') ?? document.body).append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}
