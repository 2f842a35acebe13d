// What happened: the newest decisions as they come, pages of older ones, and from them who lived where and when.
import { useEffect, useRef, useState } from './view.js';
import { get } from './api.js';
import { follow } from './sse.js';

const KEPT = 500;

/** Kinds of events: the word for people, and whether something went wrong. */
export const KINDS = {
  load: ['Load', ''], ready: ['Ready', 'good'], load_failed: ['Load failed', 'bad'], crash: ['Crash', 'bad'], drain: ['Drain', 'going'],
  evict: ['Eviction', 'going'], unload: ['Unload', 'going'], gone: ['Gone', ''], refuse: ['Refusal', 'bad'], set: ['Setting', ''],
  lease_ended: ['Lease ended', ''], cleanup: ['Cleanup', 'going'], reopen: ['Reopening', 'good'], cordon: ['Cordon', 'going'],
  uncordon: ['Uncordon', 'good'], device_failed: ['Device failed', 'bad'], adopt: ['Adopted', ''],
  fetch: ['Download', ''], fetched: ['Downloaded', 'good'], fetch_ended: ['Download ended', ''], fetch_failed: ['Download failed', 'bad'], sleep: ['Sleep', ''],
  node_joined: ['Node joined', 'good'], node_silent: ['Node silent', 'bad'], node_gone: ['Node gone', 'going'], node_drain: ['Node drains', 'going'],
  node_undrain: ['Node serves again', 'good'], node_requested: ['Node requested', ''], node_refused: ['Node refused', 'bad'], node_released: ['Node given back', ''], node_ends: ['Node ends soon', ''],
};
export const kindWord = kind => KINDS[kind]?.[0] ?? kind;
export const kindTone = kind => KINDS[kind]?.[1] ?? '';

/** One page, oldest first: the newest events, or those before the event `before`. */
export async function page({ before, limit = 200, model, kind, reason } = {}) {
  // `until` leaves out its own millisecond, in which there may be more events than that one.
  const until = before && new Date(Date.parse(before.at) + 1).toISOString();
  const { events } = await get('/admin/events', { limit, model, kind, reason, until });
  return before ? events.filter(it => it.id < before.id) : events;
}

/** The newest events first, followed live. `state`: reading, live, lost, or a failure. */
export function useEvents(limit = 100) {
  const [events, setEvents] = useState([]);
  const [state, setState] = useState('reading');
  const last = useRef(null);
  useEffect(() => {
    let stop = null, over = false;
    const begin = async () => {
      let first = [];
      try { first = await page({ limit }); } catch (failure) { if (!over) setState(failure); return; }
      if (over) return;
      last.current = first.at(-1)?.id ?? 0;
      setEvents([...first].reverse());
      stop = follow(() => `/admin/events?follow=true&after=${last.current}`, {
        state: now => setState(now === 'open' ? 'live' : 'lost'),
        event(name, text) {
          if (name === 'error') return;
          const event = JSON.parse(text);
          if (event.id <= last.current) return;
          last.current = event.id;
          setEvents(before => [event, ...before].slice(0, KEPT));
        },
      });
    };
    begin();
    return () => { over = true; stop?.(); };
  }, [limit]);
  return [events, state, setEvents];
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
