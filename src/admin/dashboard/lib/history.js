// The history: live decisions, pages of older ones, and the residence of replicas derived from them.
import { useEffect, useState } from './view.js';
import { get } from './api.js';
import { hear, live } from './live.js';

const KEPT = 500;

/** Kinds of events: their label, and their tone. */
export const KINDS = {
  load: ['Load', ''], ready: ['Ready', 'good'], load_failed: ['Load failed', 'bad'], crash: ['Crash', 'bad'], drain: ['Drain', 'going'],
  evict: ['Eviction', 'going'], unload: ['Unload', 'going'], gone: ['Gone', ''], refuse: ['Refusal', 'bad'], set: ['Setting', ''],
  lease_ended: ['Lease ended', ''], cleanup: ['Cleanup', 'going'], reopen: ['Reopening', 'good'], cordon: ['Cordon', 'going'],
  uncordon: ['Uncordon', 'good'], device_failed: ['Device failed', 'bad'], adopt: ['Adopted', ''],
  fetch: ['Download', ''], fetched: ['Downloaded', 'good'], fetch_ended: ['Download ended', ''], fetch_failed: ['Download failed', 'bad'], sleep: ['Sleep', ''],
  node_joined: ['Node joined', 'good'], node_silent: ['Node silent', 'bad'], node_gone: ['Node gone', 'going'], node_drain: ['Node drains', 'going'],
  stay: ['Stays', ''], node_undrain: ['Node serves again', 'good'], node_requested: ['Node requested', ''], node_refused: ['Node refused', 'bad'], node_released: ['Node given back', ''], node_ends: ['Node ends soon', ''], node_emptied: ['Node emptied', ''],
};
export const kindWord = kind => KINDS[kind]?.[0] ?? kind;
export const kindTone = kind => KINDS[kind]?.[1] ?? '';

/** The paths of a group and of the groups above it. */
export const above = path => path ? path.split('/').map((_, nth, names) => names.slice(0, nth + 1).join('/')) : [];

/** A page, oldest first: the newest events, or the events before `before`. */
export async function page({ before, limit = 200, model, kind, reason, group } = {}) {
  // `until` excludes its own millisecond, which may contain further events.
  const until = before && new Date(Date.parse(before.at) + 1).toISOString();
  const { events } = await get('/admin/events', { limit, model, kind, reason, group, until });
  return before ? events.filter(it => it.id < before.id) : events;
}

/** Merges two lists, newest first; `newer` has the newest events. If there is a gap between them, the older ones are dropped. */
function joined(newer, older) {
  const oldest = newer.at(-1)?.id ?? 0, ids = new Set(newer.map(it => it.id));
  if (older.length && newer.length && older[0].id < oldest && !older.some(it => ids.has(it.id))) return newer;
  return [...newer, ...older.filter(it => !ids.has(it.id))].sort((one, other) => other.id - one.id).slice(0, KEPT);
}

/** The newest events first, updated live. `state`: reading, live, lost, or a failure. */
export function useEvents(limit = 100) {
  const [events, setEvents] = useState([]);
  const [state, setState] = useState('reading');
  const status = live.use(it => it.status);
  useEffect(() => {
    let over = false, batch = [], timer = 0;
    const read = async () => {
      try {
        const newest = await page({ limit });
        if (over) return;
        setEvents(before => joined(newest.reverse(), before));
        setState('live');
      } catch (failure) { if (!over) setState(before => before === 'live' ? before : failure); }
    };
    const flush = () => {
      timer = 0;
      const added = batch.reverse();
      batch = [];
      setEvents(before => [...added.filter(it => it.id > (before[0]?.id ?? 0)), ...before].slice(0, KEPT));
    };
    // Batches bursts into few renders.
    const end = hear({ record(event) { batch.push(event); timer ||= setTimeout(flush, 30); }, missed: read });
    read();
    return () => { over = true; clearTimeout(timer); end(); };
  }, [limit]);
  return [events, state === 'live' && status === 'lost' ? 'lost' : state];
}

const ENDS = new Set(['gone', 'load_failed', 'crash']);
const LEAVES = new Set(['evict', 'unload', 'drain']);

/**
 * Who lived on which device and when, from events in their order: `{device, model, replica, from, ready, leaves, to, end}`.
 * Times are milliseconds; `to` is null for what is still there. `marks`: what happened to the pool as a whole.
 */
export function residence(events) {
  const open = new Map(), spans = [], marks = [];
  const close = (event, how) => {
    for (const span of open.get(event.replica) ?? []) { span.to = Date.parse(event.at); span.end = how; }
    open.delete(event.replica);
  };
  for (const event of events) {
    const at = Date.parse(event.at);
    if ((event.kind === 'load' || event.kind === 'adopt') && event.replica && event.placement?.length && !open.has(event.replica)) {
      const born = event.placement.map(share => ({ device: share.device, bytes: share.bytes, model: event.model, replica: event.replica, from: at,
        ready: event.kind === 'adopt' ? at : null, leaves: null, to: null, end: null, why: event.reason, event: event.id, out: null }));
      open.set(event.replica, born);
      spans.push(...born);
    }
    const mine = open.get(event.replica) ?? [];
    if (event.kind === 'ready') for (const span of mine) span.ready ??= at;
    if (LEAVES.has(event.kind)) for (const span of mine) { span.leaves ??= at; if (event.kind !== 'drain' || !span.out) span.out = event; }
    if (ENDS.has(event.kind)) close(event, event.kind);
    if (['cleanup', 'reopen', 'cordon', 'uncordon', 'device_failed', 'evict', 'load_failed', 'crash', 'refuse'].includes(event.kind)) marks.push({ at, event });
  }
  return { spans, marks };
}
