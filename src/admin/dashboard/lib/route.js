// The current location, such as `#/models?model=NAME`. It can be bookmarked and shared, and supports going back.
import { createStore } from './store.js';

function read() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { screen: path || 'pool', query: Object.fromEntries(new URLSearchParams(query)) };
}

export const route = createStore(read());
addEventListener('hashchange', () => route.set(read()));

export function link(screen, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const text = new URLSearchParams(given).toString();
  return `#/${screen}${text ? '?' + text : ''}`;
}

export function go(screen, query) {
  location.hash = link(screen, query).slice(1);
}

/** Replaces the query without a history entry, so going back does not step through every letter of a search. */
export function replace(screen, query) {
  history.replaceState(null, '', link(screen, query));
  route.set(read());
}

/** The same screen with a model's panel open, or closed with null. */
export function modelLink(model) {
  const { screen, query } = route.get();
  return link(screen === 'signin' ? 'pool' : screen, { ...query, model });
}
export function openModel(model) {
  const { screen, query } = route.get();
  go(screen, { ...query, model });
}

// Signing in at the issuer leaves the page; the tab stores its location. A location in the URL takes precedence.
const PLACE = 'model-pool.place';

export function keepPlace() {
  const { screen } = route.get();
  try { if (screen !== 'sign-on') sessionStorage.setItem(PLACE, location.hash); } catch { /* It begins at the first screen. */ }
}

export function returnToPlace() {
  let place = null;
  try {
    place = sessionStorage.getItem(PLACE);
    sessionStorage.removeItem(PLACE);
  } catch { /* It begins at the first screen. */ }
  const { screen } = route.get(), isNowhere = screen === 'sign-on' || !location.hash;
  if (isNowhere && place?.startsWith('#/')) location.replace(place);
  else if (screen === 'sign-on') location.replace('#/');
}
