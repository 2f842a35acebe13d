// The pool at a glance: every device to scale with its replicas, waiting requests, and the last decisions.
import { html, useMemo, useState, useEffect, useRef } from '../lib/view.js';
import { bytes, clean, count, countdown, short } from '../lib/text.js';
import { live, useNow } from '../lib/live.js';
import { kindTone, kindWord, useEvents } from '../lib/history.js';
import { nodes, parts, squarify, sum } from '../lib/device.js';
import { link, modelLink } from '../lib/route.js';
import { settings } from '../lib/settings.js';
import { Bar, describe, pointed } from '../parts/bar.js';
import { Choice, Clock, Empty, Head, Name, ofModel } from '../parts/bits.js';
import { WaitingRow } from './queue.js';

const MANY = 12;

export function Pool() {
  const { devices, models } = live.use();
  const chosen = settings.use(it => it.poolView);
  const view = chosen === 'auto' ? devices.length > MANY ? 'cells' : 'bars' : chosen;
  const groups = useMemo(() => nodes(devices), [devices]);
  return html`<${Head} title="Pool"><${Choice} label="Picture" value=${view} of=${[['bars', 'Bars', 'bars'], ['cells', 'Cells', 'devices'], ['map', 'Map', 'map']]}
      onChange=${poolView => settings.set({ poolView })} /><//>
    <${Summary} devices=${devices} models=${models} />
    <div class="pool-columns"><div class="pool-devices">
      ${devices.length === 0 && html`<${Empty} icon="devices" title="No devices">The pool has found neither a GPU nor memory that it may use. See “inventory” in the configuration.<//>`}
      ${view === 'map' ? html`<${TreeMap} devices=${devices} />` : groups.map(([node, list]) => html`<section class="node" key=${node} aria-label=${`Node ${node}`}>
        <h2 class="node-head"><span>Node ${node}</span><span class="soft figure">${count(list.length, 'device')} · ${bytes(sum(list, it => it.free_bytes))} free of ${bytes(sum(list, it => it.total_bytes))}</span></h2>
        <div class=${view === 'cells' ? 'cells' : 'rows'}>${list.map(device => html`<${DeviceRow} key=${device.device} device=${device} dense=${view === 'cells'} />`)}</div></section>`)}
      <${Legend} />
    </div><${Aside} /></div>`;
}

function Summary({ devices, models }) {
  const total = sum(devices, it => it.total_bytes), reserved = sum(devices, it => it.reserved_bytes), free = sum(devices, it => it.free_bytes);
  const foreign = sum(devices, it => it.foreign_bytes + it.excess_bytes), settling = sum(devices, it => it.settling_bytes);
  const ready = models.filter(it => it.state === 'ready').length, coming = models.filter(it => ['loading', 'waiting', 'fetching'].includes(it.state)).length;
  const trouble = models.filter(it => ['quarantined', 'broken', 'cooling'].includes(it.state)).length;
  const flight = sum(models, it => sum(it.replicas, replica => replica.in_flight)), waiting = sum(models, it => it.waiting);
  const tile = (value, word, to, tone) => html`<a class="tile" href=${to} data-tone=${tone}><span class="tile-value figure">${value}</span><span class="tile-word">${word}</span></a>`;
  const share = value => total ? `${Math.round(value / total * 100)} %` : '—';
  return html`<div class="tiles" role="group" aria-label="Summary">
    <a class="tile wide" href=${link('devices')}><span class="tile-value figure">${bytes(reserved)} <span class="soft">of ${bytes(total)}</span></span><span class="tile-word">reserved by replicas, ${share(reserved)}</span></a>
    ${tile(bytes(free), 'free', link('devices'))}
    ${foreign > 0 && tile(bytes(foreign), 'foreign', link('devices'))}${settling > 0 && tile(bytes(settling), 'settling', link('devices'))}
    ${tile(ready, 'ready', link('models', { state: 'ready' }))}${tile(coming, 'loading', link('models', { state: 'loading' }), coming ? 'busy' : '')}
    ${tile(flight, 'in flight', link('models'))}${tile(waiting, 'waiting', link('queue'), waiting ? 'busy' : '')}
    ${trouble > 0 && tile(trouble, 'in trouble', link('models', { state: 'trouble' }), 'bad')}</div>`;
}

function DeviceRow({ device, dense }) {
  const notes = [device.name && short(device.name, 40), device.utilisation_percent != null && `${device.utilisation_percent} % busy`, device.temperature_celsius != null && `${device.temperature_celsius} °C`];
  const trouble = device.stale ? `cannot be read: ${clean(device.stale)}` : device.cordon ? `${device.cordon.failed ? 'failed' : 'cordoned'}: ${clean(device.cordon.reason)}` : '';
  return html`<div class=${`device ${dense ? 'dense' : ''}`} id=${`device-${device.device}`}>
    <div class="device-head"><a class="device-name" href=${link('devices', { device: device.device })}>${short(device.device, 24)}</a>${
      trouble ? html`<span class="device-trouble" title=${trouble}>${short(trouble, dense ? 40 : 90)}</span>` : html`<span class="soft device-notes" title=${notes.filter(Boolean).join(' · ')}>${notes.filter(Boolean).join(' · ')}</span>`}
      <span class="device-free figure">${bytes(device.free_bytes)} free <span class="soft">of ${bytes(device.total_bytes)}</span></span></div>
    <${Bar} device=${device} height=${dense ? 34 : 56} /></div>`;
}

function Legend() {
  const kinds = [['reserved', 'reserved; strip: measured use'], ['free', 'free'], ['foreign', 'foreign'], ['settling', 'settling'], ['headroom', 'headroom']];
  return html`<ul class="legend" aria-label="Signs">${kinds.map(([kind, word]) => html`<li key=${kind}><span class="legend-sign" data-kind=${kind} aria-hidden="true"></span>${word}</li>`)}
    <li><span class="legend-sign" data-kind="left" aria-hidden="true"></span>keep-hot time left</li></ul>`;
}

function useSize(ref) {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useEffect(() => {
    const look = new ResizeObserver(([{ contentRect }]) => setSize({ width: contentRect.width, height: contentRect.height }));
    look.observe(ref.current);
    return () => look.disconnect();
  }, []);
  return size;
}

/** Devices of equal size are laid out in rows, in order; others by size. */
function layout(devices, width, height) {
  if (!devices.every(it => it.total_bytes === devices[0].total_bytes)) return squarify(devices.map(device => ({ size: device.total_bytes, device })), 0, 0, width, height);
  const columns = Math.max(1, Math.min(devices.length, Math.round(Math.sqrt(devices.length * width / Math.max(1, height) * 0.8)))), rows = Math.ceil(devices.length / columns);
  return devices.map((device, nth) => ({ item: { device }, x: (nth % columns) * width / columns, y: Math.floor(nth / columns) * height / rows, w: width / columns, h: height / rows }));
}

/** Lays out a device's parts: used ones first, free ones last. */
function within(device, x, y, w, h) {
  const all = parts(device).map(part => ({ size: part.bytes, part })), is = it => ['free', 'headroom'].includes(it.part.kind), held = all.filter(it => !is(it)), share = sum(held, it => it.size) / device.total_bytes;
  return w >= h ? [...squarify(held, x, y, w * share, h), ...squarify(all.filter(is), x + w * share, y, w * (1 - share), h)] : [...squarify(held, x, y, w, h * share), ...squarify(all.filter(is), x, y + h * share, w, h * (1 - share))];
}

/** A treemap of all devices, sized by memory, with their replicas. */
function TreeMap({ devices }) {
  const box = useRef(null), { width, height } = useSize(box), now = pointed.use(it => it.model);
  const cells = useMemo(() => layout(devices, width, height), [devices, width, height]);
  return html`<div class="treemap" ref=${box} role="group" aria-label="Memory of all devices">${cells.map(({ item: { device }, x, y, w, h }) => {
    const inner = within(device, 2, 17, w - 6, h - 21);
    return html`<div class=${`tree-device ${device.cordon ? 'cordoned' : ''}`} key=${device.device} style=${{ left: `${x}px`, top: `${y}px`, width: `${w - 2}px`, height: `${h - 2}px` }}>
      <span class="tree-name figure">${short(device.device, 16)}</span>${inner.map(({ item: { part }, x: px, y: py, w: pw, h: ph }) => {
        const style = { left: `${px}px`, top: `${py}px`, width: `${Math.max(1, pw - 1)}px`, height: `${Math.max(1, ph - 1)}px`, ...(part.model && ofModel(part.model)) };
        const words = describe(part, device);
        if (part.kind !== 'replica') return html`<span class="tree-part block" data-kind=${part.kind} key=${part.kind} style=${style} title=${words} role="img" aria-label=${words}></span>`;
        return html`<a class="tree-part block" data-kind="replica" data-state=${part.state} data-pointed=${now === part.model ? 'yes' : undefined} key=${part.replica} style=${style} title=${words}
          aria-label=${`${short(part.model, 60).split('/').at(-1)}: ${words}`} href=${modelLink(part.model)} onMouseEnter=${() => pointed.set({ model: part.model })} onMouseLeave=${() => pointed.set({ model: null })}>${
          pw > 46 && ph > 16 && html`<span class="block-name">${short(part.model, 60).split('/').at(-1)}</span>`}</a>`;
      })}</div>`;
  })}</div>`;
}

function Aside() {
  const { queue } = live.use(), [events, state] = useEvents(60);
  const shown = events.filter(it => it.kind !== 'set').slice(0, 14);
  return html`<aside class="pool-aside" aria-label="Now">
    <section><h2><a href=${link('queue')}>Waiting</a> <span class="soft figure">${queue.waiting.length}</span></h2>
      ${queue.waiting.length === 0 ? html`<p class="soft">No request waits.</p>` : html`<ul class="plain">${queue.waiting.slice(0, 6).map(it => html`<${WaitingRow} key=${it.ticket} of=${it} />`)}</ul>`}
      ${queue.waiting.length > 6 && html`<p><a href=${link('queue')}>All ${queue.waiting.length}</a></p>`}</section>
    <${NextEvening} />
    <section><h2><a href=${link('events')}>Last decisions</a></h2>
      ${state instanceof Error ? html`<p class="soft">${clean(state.message)}</p>` : shown.length === 0 ? html`<p class="soft">${state === 'reading' ? 'Reading…' : 'Nothing has happened yet.'}</p>`
        : html`<ol class="plain decisions">${shown.map(event => html`<li key=${event.id}><a class="decision" href=${link('events', { event: event.id })}>
          <span class="decision-head"><span class="kind" data-tone=${kindTone(event.kind)}>${kindWord(event.kind)}</span><${Clock} at=${event.at} /></span>
          ${event.model && html`<span class="decision-model"><${Name} of=${event.model} swatch=${false} /></span>`}<span class="soft decision-why">${clean(event.reason)}</span></a></li>`)}</ol>`}</section></aside>`;
}

function NextEvening() {
  const { evening } = live.use(), now = useNow(1000);
  if (!evening) return null;
  const [word, moment] = evening.is_evening && evening.next_reopen_at ? ['Reopening', evening.next_reopen_at] : ['Evening cleanup', evening.next_cleanup_at];
  if (!moment) return null;
  return html`<section><h2><a href=${link('evening')}>${word}</a></h2><p class="soft">in <span class="figure">${countdown(Date.parse(moment) - now)}</span>, at <${Clock} at=${moment} /></p></section>`;
}

