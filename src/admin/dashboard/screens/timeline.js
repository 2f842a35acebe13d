// The replicas on each device over hours to weeks: loads, residence, evictions, cleanups. With zoom, pan and playback.
import { html, useEffect, useMemo, useRef, useState } from '../lib/view.js';
import { bytes, clean, clock, count, day, hourMinute, short, span, timeOfDay } from '../lib/text.js';
import { kindWord, page, residence, useEvents } from '../lib/history.js';
import { live, poolNow, useNow } from '../lib/live.js';
import { sum } from '../lib/device.js';
import { link, modelLink, route } from '../lib/route.js';
import { Bar } from '../parts/bar.js';
import { Button, Choice, Empty, Head, IconButton, Loading, Problem, ofModel } from '../parts/bits.js';
import { explains } from '../parts/tip.js';

const HOUR = 3_600_000, PAGES = 12, PAGE = 1000, DRAWN = 2500, PLAY_MS = 20_000;
const RANGES = [['1', '1 h'], ['6', '6 h'], ['24', '24 h'], ['168', '7 d'], ['720', '30 d']];
const STEPS = [60_000, 300_000, 900_000, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 72 * HOUR, 168 * HOUR];

/** Events since `from`, oldest first, up to a reasonable number. */
function useHistory(from) {
  const [state, setState] = useState({ events: [], from: Infinity, isWhole: false, failure: null, reading: true });
  const [newest] = useEvents(200), at = useRef({ events: [], done: false });
  useEffect(() => {
    let over = false;
    (async () => {
      const kept = at.current;
      setState(before => ({ ...before, reading: true }));
      try {
        for (let nth = 0; nth < PAGES && !kept.done; nth += 1) {
          const oldest = kept.events[0];
          if (oldest && Date.parse(oldest.at) < from) break;
          const found = await page({ limit: PAGE, before: oldest });
          if (over) return;
          kept.events = [...found, ...kept.events];
          if (found.length === 0) kept.done = true;
        }
        if (!over) setState({ events: kept.events, isWhole: kept.done, failure: null, reading: false });
      } catch (failure) { if (!over) setState(before => ({ ...before, failure, reading: false })); }
    })();
    return () => { over = true; };
  }, [from < (state.events[0] ? Date.parse(state.events[0].at) : Infinity) && !state.isWhole ? Math.floor(from / HOUR) : 0]);
  const events = useMemo(() => {
    const last = state.events.at(-1)?.id ?? 0;
    return [...state.events, ...newest.filter(it => it.id > last).reverse()];
  }, [state.events, newest]);
  return { ...state, events };
}

/** Stacks the spans of a device by their bytes, which shows how full it was. */
function stacked(spans, total) {
  const placed = [];
  for (const it of [...spans].sort((one, other) => one.from - other.from)) {
    const end = it.to ?? Infinity, beside = placed.filter(one => one.from < end && (one.to ?? Infinity) > it.from).sort((one, other) => one.y - other.y);
    let y = 0;
    for (const one of beside) if (y + it.bytes > one.y && y < one.y + one.bytes) y = one.y + one.bytes;
    placed.push(Object.assign(it, { y: Math.min(y, Math.max(0, total - it.bytes)) }));
  }
  return placed;
}

export function TimeLine() {
  const devices = live.use(it => it.devices), { query } = route.use(), now = useNow(5000);
  const wanted = query.at ? Date.parse(query.at) : null;
  const [view, setView] = useState(() => wanted ? { from: wanted - HOUR, to: wanted + HOUR, sticks: false } : { from: poolNow() - 6 * HOUR, to: poolNow(), sticks: true });
  const [cursor, setCursor] = useState(wanted), [isPlaying, setPlaying] = useState(false), frame = useRef(null), drag = useRef(null), [width, setWidth] = useState(900);
  const from = view.sticks ? now - (view.to - view.from) : view.from, to = view.sticks ? now : view.to, range = to - from;
  const history = useHistory(from), isFitted = useRef(Boolean(wanted));
  // A young pool initially fills the chart.
  useEffect(() => {
    if (isFitted.current || history.reading) return;
    isFitted.current = true;
    const first = history.isWhole && history.events[0] ? Date.parse(history.events[0].at) : 0;
    if (first > from) setView({ from: now - Math.max(10 * 60_000, (now - first) * 1.06), to: now, sticks: true });
  }, [history.reading]);
  const { lanes, marks } = useMemo(() => {
    const { spans, marks: found } = residence(history.events), of = new Map();
    for (const it of spans) of.set(it.device, [...of.get(it.device) ?? [], it]);
    const names = [...new Set([...devices.map(it => it.device), ...of.keys()])];
    return { marks: found, lanes: names.map(name => { const device = devices.find(it => it.device === name), total = device?.total_bytes ?? Math.max(1, sum(of.get(name), it => it.bytes)); return { name, device, total, spans: stacked(of.get(name) ?? [], total) }; }) };
  }, [history.events, devices]);
  useEffect(() => {
    const look = new ResizeObserver(([{ contentRect }]) => setWidth(contentRect.width));
    if (frame.current) look.observe(frame.current);
    return () => look.disconnect();
  }, [lanes.length > 0]);
  const zoom = (factor, at = 0.5) => {
    isFitted.current = true;
    const next = Math.min(90 * 24 * HOUR, Math.max(60_000, range * factor)), middle = from + range * at;
    const end = middle + next * (1 - at);
    setView(end >= now - 1000 ? { from: now - next, to: now, sticks: true } : { from: middle - next * at, to: end, sticks: false });
  };
  const move = share => { const by = range * share, end = Math.min(now, to + by); setView({ from: end - range, to: end, sticks: end >= now - 500 }); };
  useEffect(() => {
    const element = frame.current;
    if (!element) return undefined;
    const onWheel = event => {
      if (!event.ctrlKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && !event.shiftKey) return;
      event.preventDefault();
      const box = element.getBoundingClientRect();
      if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
      else move((event.deltaX || event.deltaY) / box.width);
    };
    element.addEventListener('wheel', onWheel, { passive: false });
    return () => element.removeEventListener('wheel', onWheel);
  });
  useEffect(() => {
    if (!isPlaying) return undefined;
    let last = performance.now(), asked = 0;
    const step = time => {
      const by = (time - last) / PLAY_MS * range;
      last = time;
      setCursor(before => { const next = (before ?? from) + by; if (next >= to) { setPlaying(false); return to; } return next; });
      asked = requestAnimationFrame(step);
    };
    asked = requestAnimationFrame(step);
    return () => cancelAnimationFrame(asked);
  }, [isPlaying, range]);
  const onKey = event => {
    const act = { '+': () => zoom(0.5), '=': () => zoom(0.5), '-': () => zoom(2), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Home: () => move(-1), End: () => setView({ from: now - range, to: now, sticks: true }) }[event.key];
    if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); }
  };
  const x = at => (at - from) / range;
  const onPointer = {
    onPointerDown: event => { if (event.button === 0) drag.current = { x: event.clientX, from, to, moved: false }; },
    onPointerMove: event => {
      const start = drag.current;
      if (!start || Math.abs(event.clientX - start.x) < 4 && !start.moved) return;
      start.moved = true;
      const by = (start.x - event.clientX) / width * range, end = Math.min(now, start.to + by);
      setView({ from: end - range, to: end, sticks: end >= now - 500 });
    },
    onPointerUp: event => {
      const start = drag.current;
      drag.current = null;
      if (!start || start.moved || event.target.closest('a')) return;
      const box = frame.current.getBoundingClientRect();
      setCursor(from + (event.clientX - box.left) / box.width * range);
    },
    onPointerLeave: () => { drag.current = null; },
  };
  const step = STEPS.find(it => range / it <= Math.max(3, width / 110)) ?? 168 * HOUR, ticks = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) ticks.push(at);
  const isInside = at => x(at) * width > 30 && (1 - x(at)) * width > 30;
  const height = lanes.length <= 12 ? 62 : lanes.length <= 32 ? 36 : 24;
  const shownMarks = marks.filter(it => it.at >= from && it.at <= to);
  const poolMarks = shownMarks.filter(it => ['cleanup', 'reopen'].includes(it.event.kind));
  let left = DRAWN;
  return html`<${Head} title="Time line" about=${`${day(from)} ${hourMinute(from)} to ${view.sticks ? 'now' : `${day(to)} ${hourMinute(to)}`}${history.isWhole ? '' : ', as far as it is read'}`}>
      <${Choice} label="Range" value=${view.sticks ? String(Math.round(range / HOUR)) : ''} of=${RANGES} onChange=${hours => setView({ from: now - hours * HOUR, to: now, sticks: true })} />
      <${IconButton} icon="plus" label="Zoom in" onClick=${() => zoom(0.5)} /><button type="button" class="icon-button" aria-label="Zoom out" title="Zoom out" onClick=${() => zoom(2)}>−</button>
      <${Button} icon=${isPlaying ? 'stop' : 'play'} onClick=${() => { if (!isPlaying && (cursor === null || cursor >= to - 1000 || cursor < from)) setCursor(from); setPlaying(!isPlaying); }}>${isPlaying ? 'Stop' : 'Play'}<//><//>
    ${history.failure && html`<${Problem} failure=${history.failure} />`}
    ${history.reading && history.events.length === 0 ? html`<${Loading} />` : lanes.length === 0 ? html`<${Empty} icon="timeline" title="No devices" />` : html`<div class="time-line" tabindex="0" role="group" aria-label=${`Time line of ${count(lanes.length, 'device')}. Plus and minus zoom, arrow keys move. The list of events has the same as text.`} onKeyDown=${onKey}>
      <div class="time-names"><div class="time-ruler"></div>${lanes.map(lane => html`<div class="time-name figure" key=${lane.name} style=${{ height: `${height}px` }}>${short(lane.name, 14)}</div>`)}</div>
      <div class="time-frame" ref=${frame} ...${onPointer}><div class="time-ruler">${ticks.filter(isInside).map(at => html`<span class="time-tick figure" key=${at} style=${{ left: `${x(at) * 100}%` }}>${step >= 24 * HOUR ? day(at) : hourMinute(at)}</span>`)}</div>
        ${ticks.map(at => html`<span class="time-grid" key=${at} style=${{ left: `${x(at) * 100}%` }}></span>`)}
        ${lanes.map(lane => html`<div class="time-lane" key=${lane.name} style=${{ height: `${height}px` }}>${lane.spans.filter(it => it.from < to && (it.to ?? now) > from && left-- > 0).map(it => html`<${Span} key=${it.replica} span=${it} lane=${lane} x=${x} now=${now} from=${from} to=${to} height=${height} width=${width} />`)}
          ${shownMarks.filter(it => ['device_failed', 'cordon', 'uncordon'].includes(it.event.kind) && it.event.reason?.includes(lane.name)).map(it => html`<span class="time-mark" key=${it.event.id} style=${{ left: `${x(it.at) * 100}%` }} title=${`${kindWord(it.event.kind)}: ${clean(it.event.reason)}`}></span>`)}</div>`)}
        ${poolMarks.map(it => html`<span class="time-event" data-kind=${it.event.kind} key=${it.event.id} style=${{ left: `${x(it.at) * 100}%` }} title=${`${kindWord(it.event.kind)}, ${clock(it.at)}: ${clean(it.event.reason)}`}><span>${kindWord(it.event.kind)}</span></span>`)}
        ${cursor !== null && cursor >= from && cursor <= to && html`<span class="time-cursor" style=${{ left: `${x(cursor) * 100}%` }}><span class="figure">${timeOfDay(cursor)}</span></span>`}</div></div>
      <p class="soft time-help">${matchMedia('(pointer: coarse)').matches ? 'Drag to move, + and − zoom, tap to see a point in time. ' : 'Drag to move, Ctrl and wheel to zoom, click to see a point in time. '}${count(shownMarks.filter(it => it.event.kind === 'evict').length, 'eviction')}, ${count(shownMarks.filter(it => it.event.kind === 'load_failed' || it.event.kind === 'crash').length, 'failure')} and ${count(shownMarks.filter(it => it.event.kind === 'refuse').length, 'refusal')} in this range; <a href=${link('events')}>as a list</a>.</p>
      ${cursor !== null && html`<${Moment} at=${cursor} lanes=${lanes} onClose=${() => { setCursor(null); setPlaying(false); }} />`}`}`;
}

function Span({ span: it, lane, x, now, from, to, height, width }) {
  const start = Math.max(from, it.from), end = Math.min(to, it.to ?? now), left = x(start), part = x(end) - left, unit = (height - 6) / lane.total;
  const ready = it.ready ? Math.max(0, Math.min(1, (it.ready - start) / Math.max(1, end - start))) : 1, how = it.out ? clean(it.out.reason) : { load_failed: 'the load failed', crash: 'it crashed', gone: 'it left' }[it.end] ?? 'still there';
  const tip = explains(() => html`<p class="tip-title">${short(it.model, 70)} <span class="soft figure">${it.replica} on ${lane.name}</span></p><dl class="tip-rows"><dt>From</dt><dd>${clock(it.from)}, ${clean(it.why)}</dd>${it.ready && html`<dt>Ready</dt><dd>after ${span(it.ready - it.from)}</dd>`}
    <dt>To</dt><dd>${it.to ? clock(it.to) : 'now'}: ${how}</dd><dt>Duration</dt><dd>${span((it.to ?? now) - it.from)}</dd><dt>Reserved</dt><dd>${bytes(it.bytes)}</dd></dl>`);
  return html`<a class="time-span" data-end=${it.out?.kind === 'evict' ? 'evict' : it.end ?? ''} href=${it.out ? link('events', { event: it.out.id }) : modelLink(it.model)} aria-label=${`${short(it.model, 60)} on ${lane.name} from ${clock(it.from)} to ${it.to ? clock(it.to) : 'now'}`} draggable=${false} ...${tip}
    style=${{ ...ofModel(it.model), left: `${left * 100}%`, width: `max(2px, ${part * 100}%)`, bottom: `${3 + it.y * unit}px`, height: `${Math.max(3, it.bytes * unit - 1)}px`, '--ready': ready }}>${part * width > 46 && it.bytes * unit > 13 && html`<span class="block-name">${short(it.model, 50).split('/').at(-1)}</span>`}</a>`;
}

/** The devices at a point in time. */
function Moment({ at, lanes, onClose }) {
  return html`<section class="lines-card moment" aria-label="The pool at this time"><div class="queue-head"><h2>The pool at <span class="figure">${clock(at)}</span></h2><span class="grow"></span><${Button} icon="close" onClick=${onClose}>Close<//></div>
    <div class="cells">${lanes.filter(it => it.device).map(lane => {
      const there = lane.spans.filter(it => it.from <= at && (it.to ?? Infinity) > at), owners = there.map(it => ({ replica: it.replica, model: it.model, bytes: it.bytes, measured_bytes: null, state: it.ready !== null && it.ready <= at ? it.leaves !== null && it.leaves <= at ? 'draining' : 'ready' : 'launching' }));
      const device = { ...lane.device, owners, reserved_bytes: sum(owners, it => it.bytes), settling_bytes: 0, excess_bytes: 0, foreign_bytes: 0, cordon: null };
      return html`<div class="device dense" key=${lane.name}><div class="device-head"><b class="figure">${short(lane.name, 24)}</b><span class="device-free figure soft">${count(owners.length, 'replica')}</span></div><${Bar} device=${device} still height=${30} /></div>`;
    })}</div></section>`;
}
