// The pool as it is now: one stream feeds every screen. A hidden tab lets go of its stream after a while, so that many open tabs
// cost nothing, and takes a whole new picture when it is looked at again.
import { useEffect, useState } from './view.js';
import { createStore } from './store.js';
import { follow } from './sse.js';
import { setPoolZone } from './text.js';

const HIDDEN_MS = 60_000;
const NONE = { waiting: [], orders: [] };

/** `status`: connecting, live, lost, paused. `lead_ms`: how far the pool's clock is ahead of this one's. */
export const live = createStore({ status: 'connecting', since: Date.now(), failure: null, has: false, at: null, lead_ms: 0,
  models: [], devices: [], queue: NONE, queue_at: 0, evening: null, store: null });

export const byName = new Map();
const deviceOrder = (one, other) => one.node.localeCompare(other.node, 'en', { numeric: true }) || one.device.localeCompare(other.device, 'en', { numeric: true });
const modelOrder = (one, other) => one.model < other.model ? -1 : one.model > other.model ? 1 : 0;

function merged(list, change, key, order) {
  if (!change) return list;
  const changed = new Map((change.changed ?? []).map(it => [it[key], it]));
  const gone = new Set(change.gone ?? []);
  if (!changed.size && !gone.size) return list;
  const next = list.filter(it => !gone.has(it[key])).map(it => {
    const other = changed.get(it[key]);
    changed.delete(it[key]);
    return other ?? it;
  });
  return changed.size ? [...next, ...changed.values()].sort(order) : next;
}

function queueOf(queue) {
  if (!queue) return NONE;
  return Array.isArray(queue) ? { waiting: queue, orders: [] } : { waiting: queue.waiting ?? [], orders: queue.orders ?? [] };
}

function take(change) {
  if (change.models) {
    byName.clear();
    for (const model of change.models) byName.set(model.model, model);
  }
  live.set(change);
}

function onEvent(name, text) {
  let data;
  try { data = JSON.parse(text); } catch { return; }
  const now = Date.now();
  const moment = { at: data.at, lead_ms: Number.isFinite(Date.parse(data.at)) ? Date.parse(data.at) - now : 0 };
  if (name === 'view') {
    setPoolZone(data.evening?.timezone);
    take({ ...moment, status: 'live', has: true, failure: null, queue: queueOf(data.queue), queue_at: now, evening: data.evening ?? null, store: data.store ?? null,
      models: [...data.models ?? []].sort(modelOrder), devices: [...data.devices ?? []].sort(deviceOrder) });
  } else if (name === 'change') {
    const state = live.get();
    const models = merged(state.models, data.models, 'model', modelOrder);
    const devices = merged(state.devices, data.devices, 'device', deviceOrder);
    take({ ...moment, status: 'live', ...(models !== state.models && { models }), ...(devices !== state.devices && { devices }),
      ...(data.queue && { queue: queueOf(data.queue), queue_at: now }), ...(data.evening && { evening: data.evening }), ...(data.store && { store: data.store }) });
  }
}

let stop = null, hiding = 0;

export function connect() {
  stop?.();
  live.set({ status: live.get().has ? 'lost' : 'connecting', since: Date.now() });
  stop = follow('/admin/live', {
    event: onEvent,
    state(now, failure) {
      const { status } = live.get();
      if (now === 'open') return;
      if (status !== 'lost') live.set({ status: 'lost', since: Date.now() });
      live.set({ failure: failure ?? null });
    },
  });
}

export function disconnect() {
  stop?.();
  stop = null;
}

document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(() => { if (stop) { disconnect(); live.set({ status: 'paused', since: Date.now() }); } }, HIDDEN_MS);
  } else if (live.get().status === 'paused') {
    connect();
  }
});

/** The pool's time now, by its own clock. */
export const poolNow = () => Date.now() + live.get().lead_ms;

/** Draws the component again every so often, and returns the pool's time. */
export function useNow(everyMs = 1000) {
  const [now, setNow] = useState(poolNow);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) setNow(poolNow()); }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
