// The history of decisions, newest first, next to the details of the selected one.
import { html, useEffect, useMemo, useState } from '../lib/view.js';
import { get } from '../lib/api.js';
import { bytes, clean, short, span, withClocks } from '../lib/text.js';
import { KINDS, above, kindTone, kindWord, page, useEvents } from '../lib/history.js';
import { live } from '../lib/live.js';
import { link, replace, route } from '../lib/route.js';
import { Button, Clock, Empty, Fact, Head, IconButton, Loading, ModelLink, Name, Problem, Search } from '../parts/bits.js';
import { Icon } from '../parts/icons.js';
import { Table } from '../parts/table.js';

/** Events whose duration is the time for which the replica had been ready. */
const wasReady = it => ['evict', 'drain', 'unload'].includes(it.kind);

const COLUMNS = [
  { id: 'at', title: 'When', width: '132px', hide: 480, cell: it => html`<${Clock} at=${it.at} />` },
  { id: 'kind', title: 'What', width: '108px', cell: (it, width) => html`<span class="stack"><span class="kind" data-tone=${kindTone(it.kind)}>${kindWord(it.kind)}</span>${width < 480 && html`<span class="soft small"><${Clock} at=${it.at} /></span>`}</span>` },
  { id: 'model', title: 'Model', grow: 2, least: 120, hide: 620, cell: it => it.model ? html`<${Name} of=${it.model} most=${60} />` : html`<span class="faint">the pool</span>` },
  { id: 'reason', title: 'Why', grow: 4, least: 120, cell: (it, width) => html`<span class="stack">${width < 620 && it.model && html`<${Name} of=${it.model} most=${40} />`}<span class="clip" title=${clean(it.reason).slice(0, 2000)}>${clean(it.reason)}</span></span>` },
  { id: 'took', title: 'Duration', right: true, width: '122px', hide: 900, cell: it => it.took_ms === null ? '' : html`<span class="figure soft">${wasReady(it) ? 'was ready ' : ''}${span(it.took_ms)}</span>` },
  { id: 'id', title: 'Id', right: true, width: '70px', hide: 1100, cell: it => html`<span class="figure faint">${it.id}</span>` },
];

export function Events() {
  const { query } = route.use();
  const [newest, state] = useEvents(200), [older, setOlder] = useState([]), [isWhole, setWhole] = useState(false), [reading, setReading] = useState(false);
  const [chosen, setChosen] = useState(null);
  const { of: model = '', kind = '', cause = '', group = '', find = '' } = query, filter = { model: model || undefined, kind: kind || undefined, reason: cause || undefined, group: group || undefined };
  const set = change => replace('events', { ...query, ...change });
  // Filtered pages reach further back than the shared list.
  useEffect(() => {
    let over = false;
    setOlder([]);
    setWhole(false);
    if (!model && !kind && !cause && !group) return undefined;
    page({ ...filter, limit: 500 }).then(it => { if (!over) { setOlder(it.reverse()); setWhole(it.length < 500); } }, () => { if (!over) setWhole(true); });
    return () => { over = true; };
  }, [model, kind, cause, group]);
  const causes = useMemo(() => [...new Set([cause, ...[...older, ...newest].map(it => it.cause)].filter(Boolean))].sort(), [newest, older, cause]);
  // A group includes the groups below it.
  const groups = useMemo(() => [...new Set([group, ...[...older, ...newest].flatMap(it => above(it.group))].filter(Boolean))].sort(), [newest, older, group]);
  const is = it => (!group || above(it.group).includes(group)) && (!model || it.model === model) && (!kind || it.kind === kind) && (!cause || it.cause === cause);
  const all = useMemo(() => {
    const seen = new Map([...older, ...newest].map(it => [it.id, it])), words = find.toLowerCase();
    const has = it => is(it) && (!words || `${it.model ?? ''} ${it.reason} ${it.replica ?? ''} ${it.order ?? ''} ${kindWord(it.kind)}`.toLowerCase().includes(words));
    return [...seen.values()].filter(has).sort((one, other) => other.id - one.id);
  }, [newest, older, model, kind, cause, group, find]);
  const more = async () => {
    setReading(true);
    try {
      const before = [...older, ...newest].filter(is).reduce((one, other) => other.id < one.id ? other : one), found = await page({ ...filter, before, limit: 500 });
      setOlder(now => [...now, ...found]);
      if (!found.length) setWhole(true);
    } catch { setWhole(true); }
    setReading(false);
  };
  const id = query.event ? Number(query.event) : null;
  const event = all.find(it => it.id === id) ?? (chosen?.id === id ? chosen : null);
  return html`<${Head} title="Events" about=${state === 'live' ? 'Every decision with its reason, as it is made' : state === 'lost' ? 'The connection is lost; reconnecting' : undefined}><${Search} label="Find in reasons" value=${find} onInput=${value => set({ find: value })} /><//>
    <div class="filters"><label class="select"><span class="quiet">Kind</span><select value=${kind} onChange=${it => set({ kind: it.currentTarget.value })}><option value="">Every kind</option>${Object.entries(KINDS).map(([name, [word]]) => html`<option value=${name} key=${name}>${word}</option>`)}</select></label>
      ${causes.length > 1 && html`<label class="select"><span class="quiet">Reason</span><select value=${cause} onChange=${it => set({ cause: it.currentTarget.value })}><option value="">Every reason</option>${causes.map(name => html`<option value=${name} key=${name}>${name.replaceAll('_', ' ')}</option>`)}</select></label>`}
      ${groups.length > 0 && html`<label class="select"><span class="quiet">Group</span><select value=${group} onChange=${it => set({ group: it.currentTarget.value })}><option value="">Every group</option>${groups.map(path => html`<option value=${path} key=${path}>${short(path, 60)}</option>`)}</select></label>`}
      ${model && html`<span class="chip on"><${Name} of=${model} most=${50} /><${IconButton} icon="close" label="All models" onClick=${() => set({ of: '' })} /></span>`}</div>
    ${state instanceof Error ? html`<${Problem} failure=${state} />` : html`<div class=${`split ${id !== null ? 'open' : ''}`}><div class="split-list">
      <${Table} label="Events" columns=${COLUMNS} rows=${all} id=${it => String(it.id)} rowHeight=${innerWidth < 700 || id !== null && innerWidth < 1700 ? 52 : 40} onOpen=${it => { setChosen(it); replace('events', { ...query, event: it.id }); }} opened=${query.event} hold=${{ by: `${model} ${kind} ${cause} ${group} ${find}` }}
        empty=${state === 'reading' ? html`<${Loading} />` : html`<${Empty} icon="events" title="No events">Loads, evictions, refusals and failures appear here with their reasons.<//>`} />
      ${!isWhole && all.length > 0 && html`<p class="center"><${Button} busy=${reading} onClick=${more}>Older<//></p>`}</div>
      ${id !== null && html`<${Why} key=${id} id=${id} event=${event} onClose=${() => set({ event: '' })} />`}</div>`}`;
}

/** The decision behind an event: the caller, the candidates, the choice, and its effect on the memory. */
export function Why({ id, event: known, onClose }) {
  const [why, setWhy] = useState(null), [failure, setFailure] = useState(null), [event, setEvent] = useState(known);
  const devices = live.use(it => it.devices);
  useEffect(() => {
    const abort = new AbortController();
    get('/admin/why', { event: id }, { signal: abort.signal }).then(setWhy, it => { if (!abort.signal.aborted) setFailure(it); });
    if (!known) get('/admin/events', { after: id - 1, limit: 1 }, { signal: abort.signal }).then(it => setEvent(it.events.find(one => one.id === id) ?? null), () => {});
    return () => abort.abort();
  }, [id]);
  const it = { ...event, ...(why && { model: why.model ?? event?.model, reason: why.reason ?? event?.reason, at: why.at ?? event?.at }) };
  const memory = memoryOf(why, event), candidates = candidatesOf(why, event), words = (why?.words ?? []).filter(text => !candidates.some(one => one.words === text));
  if (!event && !why) return html`<section class="why" aria-label="Why">${failure ? html`<${Problem} failure=${failure} />` : html`<${Loading} />`}</section>`;
  return html`<section class="why" aria-label="The decision"><header class="why-head"><h2><span class="kind" data-tone=${kindTone(it.kind)}>${kindWord(it.kind)}</span>${it.model && html` <${ModelLink} of=${it.model} most=${60} />`}</h2><${IconButton} icon="close" label="Close" onClick=${onClose} /></header>
    <p class="why-reason">${clean(it.reason)}</p>
    <dl class="facts"><${Fact} label="When"><${Clock} at=${it.at} /><//>${why?.asked_by && html`<${Fact} label="Requested by">${clean(typeof why.asked_by === 'string' ? why.asked_by : why.asked_by.name ?? JSON.stringify(why.asked_by))}${why.group && html` <span class="soft">in ${clean(why.group)}</span>`}<//>`}
      ${it.replica && html`<${Fact} label="Replica"><span class="figure">${it.replica}</span><//>`}${it.order && html`<${Fact} label="Order"><span class="figure">${it.order}</span><//>`}
      ${it.priority !== null && it.priority !== undefined && html`<${Fact} label="Priority">${it.priority}<//>`}${it.took_ms !== null && it.took_ms !== undefined && html`<${Fact} label=${wasReady(it) ? 'Was ready for' : 'Duration'}>${span(it.took_ms)}<//>`}
      ${event?.placement?.length > 0 && html`<${Fact} label="Placed on">${event.placement.map(share => `${share.device} (${bytes(share.bytes)})`).join(', ')}<//>`}</dl>
    ${words.length > 0 && html`<ul class="why-words">${words.map((text, nth) => html`<li key=${nth}>${withClocks(clean(text))}</li>`)}</ul>`}
    ${candidates.length > 0 && html`<h3>Candidates</h3><ol class="plain candidates">${candidates.map((one, nth) => html`<li key=${nth} data-chosen=${one.chosen ? 'yes' : undefined}><span class="candidate-sign" aria-hidden="true">${one.chosen && html`<${Icon} name="check" size=${14} />`}</span>
      <div class="grow">${one.model && html`<p><${ModelLink} of=${one.model} most=${50} />${one.device && html` <span class="soft figure">${one.device}</span>`}${one.chosen && html` <b>chosen</b>`}</p>`}<p class="soft">${clean(one.words)}</p>
      ${one.keys.length > 0 && html`<p class="candidate-keys figure">${one.keys.join(' · ')}</p>`}</div></li>`)}</ol>`}
    ${memory.length > 0 && html`<h3>Reserved memory, before and after</h3><div class="memory-changes">${memory.map(change => html`<${MemoryChange} key=${change.device} change=${change} total=${devices.find(one => one.device === change.device)?.total_bytes} />`)}</div>`}
    <p class="why-links">${it.model && html`<a href=${link('events', { of: it.model })}>All of this model</a><a href=${link('logs', { model: it.model })}>Its log</a>`}<a href=${link('timeline', { at: it.at })}>On the time line</a></p></section>`;
}

function candidatesOf(why, event) {
  const list = why?.candidates?.length ? why.candidates : event?.candidates ?? [];
  return list.map(one => typeof one === 'string' ? { words: one, chosen: one.includes('chosen'), keys: [] }
    : { ...one, words: one.words ?? '', keys: one.words ? [] : [one.priority !== undefined && one.priority !== null && `priority ${one.priority}`, one.idle_seconds != null && `idle ${span(one.idle_seconds * 1000)}`, one.reload_seconds != null && `reload ${span(one.reload_seconds * 1000)}`, one.memory_bytes != null && bytes(one.memory_bytes)].filter(Boolean) });
}

function memoryOf(why, event) {
  if (Array.isArray(why?.memory)) return why.memory.map(it => ({ device: it.device, before: it.before_bytes ?? it.before, after: it.after_bytes ?? it.after }));
  if (why?.memory) return Object.entries(why.memory).map(([device, it]) => ({ device, before: it.before_bytes ?? it.before, after: it.after_bytes ?? it.after }));
  return (event?.memory ?? []).map(it => ({ device: it.device, before: it.before_bytes, after: it.after_bytes }));
}

function MemoryChange({ change, total }) {
  const whole = total ?? Math.max(change.before, change.after, 1);
  const line = (word, value) => html`<div class="change-line"><span class="change-word">${word}</span><span class="meter" role="img" aria-label=${`${word}: ${bytes(value)}`}><span style=${{ '--part': value / whole }}></span></span><span class="figure change-bytes">${bytes(value)}</span></div>`;
  return html`<div class="change"><p class="change-name">${short(change.device, 30)}${total && html`<span class="soft figure">${bytes(total)}</span>`}</p>${line('before', change.before)}${line('after', change.after)}</div>`;
}
