// The user's preferences, kept in this browser: theme, time zone, pinned models, layout. Without storage they last as long as the page.
import { createStore } from './store.js';

const NAME = 'model-pool.dashboard';
const DEFAULTS = { theme: 'auto', zone: 'own', pins: [], poolView: 'auto', columns: [] };

function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(NAME) || '{}');
    const known = Object.entries(DEFAULTS).map(([name, value]) => [name, typeof kept[name] === typeof value ? kept[name] : value]);
    const settings = Object.fromEntries(known);
    settings.pins = settings.pins.filter(it => typeof it === 'string');
    return settings;
  } catch {
    return { ...DEFAULTS };
  }
}

export const settings = createStore(read());

function apply() {
  const { theme } = settings.get();
  document.documentElement.dataset.theme = theme;
}

settings.subscribe(() => {
  apply();
  try { localStorage.setItem(NAME, JSON.stringify(settings.get())); } catch { /* It lives as long as the page. */ }
});
apply();

export function togglePin(model) {
  const { pins } = settings.get();
  settings.set({ pins: pins.includes(model) ? pins.filter(it => it !== model) : [...pins, model] });
}

export const THEMES = { auto: 'as the system', light: 'light', dark: 'dark' };
