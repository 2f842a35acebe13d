// The frame of every screen: navigation, state of the pool and of the connection, and the signed-in user.
import { html, useEffect, useState } from '../lib/view.js';
import { session, signOut } from '../lib/api.js';
import { live, ticks, useNow } from '../lib/live.js';
import { clean, knownPoolZone, ownZone, short, span, timeOfDay, wholeTime } from '../lib/text.js';
import { link, route } from '../lib/route.js';
import { settings, THEMES } from '../lib/settings.js';
import { Icon } from './icons.js';
import { IconButton, Keys } from './bits.js';
import { Menu } from './menu.js';
import { openHelp } from './help.js';
import { openPalette } from './palette.js';
import { SCREENS } from './screens.js';

/** Full-width screens. */
const PICTURES = new Set(['pool', 'timeline', 'config', 'logs', 'playground', 'devices']);

export function Shell({ children, panel }) {
  const { screen } = route.use(), role = session.use(it => it.who?.role), [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [screen]);
  const groups = new Map();
  for (const [name, it] of Object.entries(SCREENS)) if (it.for.includes(role)) groups.set(it.group, [...groups.get(it.group) ?? [], [name, it]]);
  return html`<a class="skip" href="#main" onClick=${event => { event.preventDefault(); document.getElementById('main').focus(); }}>Skip to the content</a>
    <header class="top"><${IconButton} icon="menu" label="Screens" class="icon-button nav-button" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)} />
      <a class="brand" href=${link(role === 'user' ? 'home' : 'pool')}><${Logo} /><span>model-pool</span></a>
      <button type="button" class="palette-button" aria-keyshortcuts="Control+K" onClick=${openPalette}><${Icon} name="search" /><span>Find or do…</span><${Keys} of="Ctrl K" /></button>
      <span class="grow"></span>${role !== 'user' && html`<${Connection} />`}<${PoolClock} /><${Account} /></header>
    <nav class=${`rail ${isOpen ? 'open' : ''}`} aria-label="Screens">${[...groups].map(([group, list]) => html`<div class="rail-group" key=${group}>${group && html`<p class="rail-title" id=${`rail-${group}`}>${group}</p>`}<ul aria-labelledby=${group ? `rail-${group}` : undefined}>${list.map(([name, it]) => html`<li key=${name}>
      <a href=${link(name)} aria-current=${screen === name ? 'page' : undefined} title=${`${it.word} (g ${it.key})`}><${Icon} name=${it.icon} /><span>${it.word}</span>${name === 'queue' && html`<${Waiting} />`}</a></li>`)}</ul></div>`)}</nav>
    ${isOpen && html`<div class="rail-shade" onClick=${() => setOpen(false)}></div>`}
    <main id="main" class="content" data-kind=${PICTURES.has(screen) ? 'picture' : 'rows'} tabindex="-1"><${Lost} />${children}</main>${panel}`;
}

const Logo = () => html`<svg class="logo" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true"><rect x="1" y="2" width="11" height="7" rx="1.500" /><rect x="13.500" y="2" width="5.500" height="7" rx="1.500" opacity="0.55" /><rect x="1" y="11" width="5.500" height="7" rx="1.500" opacity="0.55" /><rect x="8" y="11" width="11" height="7" rx="1.500" opacity="0.8" /></svg>`;

function Waiting() {
  const waiting = live.use(it => it.queue.waiting.length);
  return waiting > 0 ? html`<span class="badge figure" aria-label=${`${waiting} waiting`}>${waiting > 999 ? '999+' : waiting}</span>` : null;
}

function Connection() {
  const status = live.use(it => it.status);
  const word = { live: 'Live', connecting: 'Connecting', lost: 'Connection lost', paused: 'Paused' }[status];
  return html`<span class="connection" data-status=${status} role="status"><span class="connection-sign" aria-hidden="true"></span><span class="connection-word">${word}</span></span>`;
}

/** Shows the age of an outdated view, and the reason. */
function Lost() {
  const { status, since, has, failure, store } = live.use(), now = useNow(1000), role = session.use(it => it.who?.role);
  const trouble = store?.trouble;
  if (role === 'user') return null;
  if (status === 'lost' && ticks() - since > 1500) {
    return html`<p class="lost" role="alert"><${Icon} name="alert" /><span>The connection to the pool is lost${has ? html`; what you see is <b class="figure">${span(Math.max(0, ticks() - since + 0 * now))}</b> old` : ''}. Retrying automatically.${failure ? ` ${clean(failure.message)}` : ''}</span></p>`;
  }
  return trouble ? html`<p class="lost" role="alert"><${Icon} name="alert" /><span>The pool cannot write its state, so changes are refused; loaded models are served, and others may fail to load. ${clean(trouble)}</span></p>` : null;
}

function PoolClock() {
  const now = useNow(1000);
  settings.use(it => it.zone);
  return html`<time class="pool-clock figure" title=${wholeTime(now)}>${timeOfDay(now)}</time>`;
}

function Account() {
  const { who } = session.use(), { theme, zone } = settings.use();
  const pool = knownPoolZone(), roles = { admin: 'administrator', viewer: 'viewer: can see everything, but change nothing', user: 'user' };
  const items = [
    ...Object.entries(THEMES).map(([name, word]) => [`Theme: ${word}${theme === name ? ' ✓' : ''}`, () => settings.set({ theme: name }), { icon: 'sun' }]), null,
    [`Times: yours, ${ownZone()}${zone === 'own' || !pool ? ' ✓' : ''}`, () => settings.set({ zone: 'own' }), { icon: 'events' }],
    ...(pool ? [[`Times: the pool’s, ${pool}${zone === 'pool' ? ' ✓' : ''}`, () => settings.set({ zone: 'pool' }), { icon: 'events' }]] : []), null,
    ['Keyboard and help', openHelp, { icon: 'why' }], ['Sign out', signOut, { icon: 'out' }],
  ];
  return html`<${Menu} label=${`Signed in as ${short(who?.name ?? '', 60)}, ${roles[who?.role] ?? ''}. Settings`} items=${items} kind="account-button"><${Icon} name="person" /><span class="account-name">${short(who?.name ?? '', 24)}</span>${who?.role === 'viewer' && html`<span class="role">viewer</span>`}<//>`;
}
