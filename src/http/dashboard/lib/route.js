// Where the reader is: `#/models?model=NAME`. The address can be kept, sent and gone back from.
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

/** Changes the query in place, so that going back does not step through every letter of a search. */
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
