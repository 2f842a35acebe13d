// An observable value. Components that use a part of it are only rendered again if that part changes.
import { useLayoutEffect, useState } from './view.js';

export function createStore(initial) {
  let state = initial;
  const listeners = new Set();
  const store = {
    get: () => state,
    set(change) {
      const next = typeof change === 'function' ? change(state) : change;
      state = { ...state, ...next };
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    use(select = it => it) {
      const [, redraw] = useState(0);
      const value = select(state);
      useLayoutEffect(() => {
        let shown = value;
        const look = () => {
          const now = select(state);
          if (Object.is(now, shown)) return;
          shown = now;
          redraw(count => count + 1);
        };
        look();
        return store.subscribe(look);
      });
      return value;
    },
  };
  return store;
}
