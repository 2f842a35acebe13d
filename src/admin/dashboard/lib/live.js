// The live state of the pool: a single stream with the view and decisions feeds every screen. A hidden tab reconnects when it
// is shown again. Times use a monotonic clock, which is not affected by changes of the system time.
import { useEffect, useState } from './view.js';
import { divide } from './colour.js';
import { createStore } from './store.js';
import { follow } from './sse.js';
import { setPoolZone } from './text.js';

const NONE = { waiting: [], orders: [] };

/** Milliseconds since the page was loaded. */
export const ticks = () => performance.now();

/** `status`: connecting, live, lost, paused; `since` and `queue_at` in ticks. `lead_ms`: offset of the pool's clock from the ticks. */
export const live = createStore({ status: 'connecting', since: ticks(), failure: null, has: false, at: null, lead_ms: Date.now() - ticks(),
  models: [], devices: [], queue: NONE, queue_at: 0, evening: null, store: null });

export const byName = new Map();
/** The server's own devices first: only those of other nodes have a node in their names. */
const deviceOrder = (one, other) => one.device.includes('/') - other.device.includes('/') || one.node.localeCompare(other.node, 'en', { numeric: true }) || one.device.localeCompare(other.device, 'en', { numeric: true });
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
    divide([...byName.keys()]);
  }
  live.set(change);
}

function onEvent(name, text) {
  let data;
  try { data = JSON.parse(text); } catch { return; }
  if (name === 'record') { for (const heard of [...listeners]) heard.record(data); return; }
  if (name === 'missed') { for (const heard of [...listeners]) heard.missed(); return; }
  const now = ticks(), moment = { at: data.at, lead_ms: (Number.isFinite(Date.parse(data.at)) ? Date.parse(data.at) : Date.now()) - now };
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

const listeners = new Set();

/** Subscribes `{record(event), missed()}` to new decisions and to gaps. Returns a function to unsubscribe. */
export function hear(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

let stop = null;

export function connect() {
  stop?.();
  live.set({ status: live.get().has ? 'lost' : 'connecting', since: ticks() });
  stop = follow('/admin/live?events=true', {
    event: onEvent,
    state(now, failure) {
      const { status } = live.get();
      if (now === 'open') { for (const heard of [...listeners]) heard.missed(); return; }
      const next = now === 'paused' ? 'paused' : 'lost';
      if (status !== next) live.set({ status: next, since: ticks() });
      live.set({ failure: failure ?? null });
    },
  });
}

export function disconnect() {
  stop?.();
  stop = null;
}

/** The current time of the pool's clock. */
export const poolNow = () => ticks() + live.get().lead_ms;

/** Renders the component periodically, and returns the pool's time. */
export function useNow(everyMs = 1000) {
  const [now, setNow] = useState(poolNow);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) setNow(poolNow()); }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
