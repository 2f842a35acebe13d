// Short messages about the results of actions. Screen readers announce them, and they stay while the pointer is on them.
import { html } from '../lib/view.js';
import { createStore } from '../lib/store.js';
import { clean } from '../lib/text.js';
import { IconButton } from './bits.js';
import { Icon } from './icons.js';

const messages = createStore({ list: [] });
let next = 1;
const timers = new Map();

function schedule(id, ms) {
  clearTimeout(timers.get(id));
  if (ms) timers.set(id, setTimeout(() => dismiss(id), ms));
}
export function dismiss(id) {
  clearTimeout(timers.get(id));
  timers.delete(id);
  messages.set(({ list }) => ({ list: list.filter(it => it.id !== id) }));
}

/** `tone`: good, bad, busy; busy messages stay until they are updated. `action`: a button's label and function. Returns the id. */
export function tell(text, { tone = 'good', more = null, link = null, action = null, id = null } = {}) {
  const known = id !== null && messages.get().list.some(it => it.id === id);
  const message = { id: id ?? next++, text: clean(text), tone, more: more && clean(more), link, action };
  messages.set(({ list }) => ({ list: known ? list.map(it => it.id === message.id ? message : it) : [...list, message].slice(-5) }));
  schedule(message.id, tone === 'busy' ? 0 : tone === 'bad' ? 15_000 : action ? 10_000 : 5_000);
  return message.id;
}

export function Messages() {
  const { list } = messages.use();
  return html`<div class="messages" role="status" aria-live="polite">${list.map(it => html`<div class="message" key=${it.id} data-tone=${it.tone}
      onMouseEnter=${() => schedule(it.id, 0)} onMouseLeave=${() => it.tone !== 'busy' && schedule(it.id, 4000)}>
    ${it.tone === 'busy' ? html`<span class="spinner" aria-hidden="true"></span>` : html`<${Icon} name=${it.tone === 'bad' ? 'alert' : 'check'} />`}
    <div><p>${it.text}</p>${it.more && html`<p class="soft">${it.more}</p>`}${it.link && html`<p><a href=${it.link[1]}>${it.link[0]}</a></p>`}${it.action && html`<p><button type="button" class="text-button" onClick=${() => { dismiss(it.id); it.action[1](); }}>${it.action[0]}</button></p>`}</div>
    <${IconButton} icon="close" label="Dismiss" onClick=${() => dismiss(it.id)} /></div>`)}</div>`;
}
