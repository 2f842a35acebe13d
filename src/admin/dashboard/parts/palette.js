// The command palette: finds screens, models and actions by a few letters. Opened with Ctrl+K or /. Actions that affect the pool open their dialog.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../lib/view.js';
import { live } from '../lib/live.js';
import { mayChange, session, signOut } from '../lib/api.js';
import { go, openModel } from '../lib/route.js';
import { settings, THEMES } from '../lib/settings.js';
import { short } from '../lib/text.js';
import { openDialog } from './dialog.js';
import { Icon } from './icons.js';
import { Keys, ofModel, stateWord } from './bits.js';
import { openHelp } from './help.js';
import { openLease, openPriority, openUnload } from './model-actions.js';
import { openPlan } from './plan.js';
import { SCREENS } from './screens.js';

export const openPalette = () => openDialog(Palette);

const MODELS_FIRST = 6;

/** Scores a fuzzy match: all letters must occur in order; word beginnings and runs score higher. */
export function score(letters, text) {
  if (!letters) return 1;
  const low = text.toLowerCase(), whole = low.indexOf(letters);
  if (whole >= 0) return 1000 - whole - text.length / 100 + (whole === 0 || /[\s/_-]/.test(low[whole - 1]) ? 200 : 0);
  let at = -1, points = 0;
  for (const letter of letters) {
    if (letter === ' ') continue;
    const next = low.indexOf(letter, at + 1);
    if (next < 0) return 0;
    points += next === at + 1 ? 6 : /[\s/_.-]/.test(low[next - 1] ?? ' ') ? 4 : 1;
    at = next;
  }
  return points;
}

function commands() {
  const role = session.get().who?.role, may = mayChange(), all = [];
  for (const [name, { word, icon, for: roles }] of Object.entries(SCREENS)) if (roles.includes(role)) all.push({ icon, words: word, hint: `g ${SCREENS[name].key}`, act: () => go(name), isScreen: true });
  const { models, devices } = live.get();
  for (const model of models) {
    const name = model.model, about = { model: name, state: model.state };
    all.push({ ...about, words: name, hint: stateWord(model.state), act: () => openModel(name) });
    all.push({ ...about, words: `Load ${name}`, icon: 'up', hint: 'plan', act: () => openPlan(name), rare: true });
    if (may && model.replicas.length) all.push({ ...about, words: `Unload ${name}`, icon: 'eject', hint: 'confirm', act: () => openUnload([name]), rare: true });
    all.push({ ...about, words: `Log of ${name}`, icon: 'logs', hint: 'follow', act: () => go('logs', { model: name }), rare: true });
    all.push({ ...about, words: `Why ${name}: its events`, icon: 'why', hint: 'history', act: () => go('events', { of: name }), rare: true });
    if (may) all.push({ ...about, words: `Priority of ${name}`, icon: 'bars', hint: 'change', act: () => openPriority([name]), rare: true }, { ...about, words: `Lease of ${name}`, icon: 'evening', hint: 'change', act: () => openLease(name), rare: true });
  }
  if (role !== 'user') for (const device of devices) all.push({ icon: 'devices', words: `Device ${device.device}`, hint: device.cordon ? 'cordoned' : 'device', act: () => go('devices', { device: device.device }), rare: true });
  for (const [theme, word] of Object.entries(THEMES)) all.push({ icon: 'sun', words: `Theme: ${word}`, hint: 'theme', act: () => settings.set({ theme }) });
  all.push({ icon: 'events', words: 'Times in your own zone', hint: 'time', act: () => settings.set({ zone: 'own' }) }, { icon: 'events', words: 'Times in the pool’s zone', hint: 'time', act: () => settings.set({ zone: 'pool' }) });
  all.push({ icon: 'why', words: 'Keyboard and help', hint: '?', act: openHelp }, { icon: 'out', words: 'Sign out', hint: 'session', act: signOut });
  return all;
}

function Palette({ close }) {
  const [text, setText] = useState(''), [at, setAt] = useState(0), it = useRef(null), list = useRef(null);
  const all = useMemo(commands, []), letters = text.trim().toLowerCase();
  const found = useMemo(() => {
    const rated = all.map(one => [score(letters, one.words) * (one.rare ? 0.9 : 1), one]).filter(([points, one]) => points > 0 && (letters || !one.rare));
    if (letters) return rated.sort(([one], [other]) => other - one).slice(0, 40).map(([, one]) => one);
    // Initial order: pinned and loaded models, then screens, then the rest.
    const { pins } = settings.get(), first = one => pins.includes(one.model) ? 0 : one.state === 'ready' ? 1 : 2, list = rated.map(([, one]) => one);
    const models = list.filter(one => one.model).sort((one, other) => first(one) - first(other)).slice(0, MODELS_FIRST);
    return [...models, ...list.filter(one => one.isScreen), ...list.filter(one => !one.model && !one.isScreen)];
  }, [letters]);
  // Focused before the next key press, which belongs to the palette rather than the previously focused field.
  useLayoutEffect(() => { const dialog = it.current; dialog.showModal(); return () => { if (dialog.open) dialog.close(); }; }, []);
  useEffect(() => { list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' }); }, [at, letters]);
  const carryOut = one => { if (!one) return; close(); one.act(); };
  const onKey = event => {
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 8, PageUp: at - 8 }[event.key] ?? (event.ctrlKey ? { n: at + 1, p: at - 1 }[event.key] : undefined);
    if (to !== undefined) { event.preventDefault(); setAt(Math.max(0, Math.min(found.length - 1, to))); }
    if (event.key === 'Enter') { event.preventDefault(); carryOut(found[at]); }
  };
  return html`<dialog ref=${it} class="palette" aria-label="Commands" onCancel=${event => { event.preventDefault(); close(); }} onMouseDown=${event => { if (event.target === it.current) close(); }}><div class="palette-box">
    <div class="palette-input"><${Icon} name="search" /><input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${found[at] ? `command-${at}` : undefined} aria-label="Find a screen, a model or an action" placeholder="Find a screen, a model or an action" autocomplete="off" spellcheck=${false} autofocus
      value=${text} onInput=${event => { setText(event.currentTarget.value); setAt(0); }} onKeyDown=${onKey} /><${Keys} of="Esc" /></div>
    <ul class="palette-list" role="listbox" id="palette-list" aria-label="Commands" ref=${list}>${found.map((one, nth) => html`<li key=${one.words + nth} id=${`command-${nth}`} role="option" aria-selected=${String(nth === at)} onMouseMove=${() => { if (nth !== at) setAt(nth); }} onClick=${() => carryOut(one)}>
      ${one.icon ? html`<${Icon} name=${one.icon} />` : html`<span class="swatch" style=${ofModel(one.model)}></span>`}<span class="grow clip">${short(one.words, 90)}</span><span class="soft">${one.hint}</span></li>`)}
      ${found.length === 0 && html`<li class="soft" role="option" aria-disabled="true" aria-selected="false">No matching command.</li>`}</ul></div></dialog>`;
}
