// All models: search, sort, filter, pin, select several, and set priorities.
import { html, useEffect, useMemo, useRef, useState } from '../lib/view.js';
import { bytes, count, short, sourceOf, span } from '../lib/text.js';
import { byName, live, useNow } from '../lib/live.js';
import { sum } from '../lib/device.js';
import { openModel, replace, route } from '../lib/route.js';
import { settings, togglePin } from '../lib/settings.js';
import { READ_ONLY, useMayChange } from '../lib/api.js';
import { countdown } from '../lib/text.js';
import { Ago, Button, Empty, Head, Name, Search, State, progressOf } from '../parts/bits.js';
import { Icon } from '../parts/icons.js';
import { Menu } from '../parts/menu.js';
import { Table } from '../parts/table.js';
import { actionsOf, openBulkLoad, openPriority, openUnload } from '../parts/model-actions.js';
import { openPlan } from '../parts/plan.js';
import { VirtualModels } from '../parts/virtual-models.js';

export const GROUPS = {
  all: ['All', () => true], ready: ['Ready', it => it.state === 'ready'], loading: ['Loading', it => ['loading', 'waiting', 'fetching'].includes(it.state)],
  hot: ['Always hot', it => it.always_hot], changed: ['Overridden', it => Boolean(it.override)], cold: ['Cold', it => ['cold', 'asleep'].includes(it.state)],
  trouble: ['In trouble', it => ['quarantined', 'cooling', 'broken'].includes(it.state) || Boolean(it.file_error)],
};
const RANK = { ready: 0, draining: 1, loading: 2, waiting: 3, fetching: 4, asleep: 5, cooling: 6, quarantined: 7, broken: 8, cold: 9 };

const flight = model => sum(model.replicas, it => it.in_flight);
const running = model => model.replicas.filter(it => it.state !== 'planned').length;
const measured = model => { const known = model.replicas.filter(it => it.measured_bytes !== null); return known.length ? sum(known, it => it.measured_bytes) : null; };
const needed = model => model.needs.bytes_per_device * model.needs.devices;
const estimated = model => model.estimated_bytes_per_device === null ? model.needs.bytes_per_device * model.needs.devices : model.estimated_bytes_per_device * model.needs.devices;

export const SORTS = {
  model: it => it.model.toLowerCase(), state: it => RANK[it.state] ?? 10, priority: it => it.priority, replicas: running, flight, waiting: it => it.waiting,
  used: it => Date.parse(it.last_used_at) || 0, load: it => it.load_ms_expected, memory: it => measured(it) ?? needed(it), requests: it => it.requests_total,
};

/** Filters and sorts the rows; ties are broken by name. */
export function arranged(models, { text, group, sort, pins }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean), is = (GROUPS[group] ?? GROUPS.all)[1], of = SORTS[sort.by] ?? SORTS.model, pinned = new Set(pins);
  const rows = models.filter(it => is(it) && words.every(word => it.model.toLowerCase().includes(word) || it.aliases.some(alias => alias.toLowerCase().includes(word)) || it.engine.includes(word)));
  const compare = (one, other) => { const a = of(one), b = of(other); return (a < b ? -1 : a > b ? 1 : 0) * (sort.down ? -1 : 1) || (one.model < other.model ? -1 : 1); };
  return rows.sort((one, other) => Number(pinned.has(other.model)) - Number(pinned.has(one.model)) || compare(one, other));
}

/** A priority with two buttons and a field. They only open the dialog that shows the effect. */
export function PriorityField({ model }) {
  const may = useMayChange(), [value, setValue] = useState(null), input = useRef(null);
  const review = to => {
    setValue(null);
    if (to !== model.priority && Number.isInteger(to) && to >= 0 && to <= 1_000_000) openPriority([model.model], to);
  };
  // As in the browser's number fields, arrow keys step; Enter opens the preview.
  const onKey = event => {
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (step) { event.preventDefault(); setValue(String(Math.max(0, Number(value ?? model.priority) + step || 0))); }
    if (event.key === 'Enter') review(Number(value ?? model.priority));
    if (event.key === 'Escape') { setValue(null); event.currentTarget.blur(); }
    event.stopPropagation();
  };
  const where = { override: 'set by an administrator', file: 'from the model’s file', reference: 'from model_reference.json', default: 'the default' }[model.priority_from];
  if (!may || model.state === 'broken') return html`<span class="figure" title=${where}>${model.priority}</span>`;
  return html`<span class=${`stepper ${model.priority_from === 'override' ? 'over' : ''}`} title=${where}>
    <button type="button" tabindex="-1" aria-label="Lower" title="Lower the priority…" disabled=${model.priority === 0} onClick=${() => review(model.priority - 1)}>−</button>
    <input ref=${input} inputmode="numeric" aria-label=${`Priority of ${short(model.model, 60)}`} value=${value ?? model.priority} onFocus=${event => event.currentTarget.select()} onInput=${event => setValue(event.currentTarget.value)}
      onKeyDown=${onKey} onBlur=${() => setValue(null)} />
    <button type="button" tabindex="-1" aria-label="Higher" title="Raise the priority…" onClick=${() => review(model.priority + 1)}>+</button></span>`;
}

export function Lease({ model }) {
  const now = useNow(1000), end = model.override?.expires_at;
  return end ? html`<span class="lease figure" title="Until then, protected from keep-hot and from equal or lower priorities. Afterwards the catalogue’s values apply again">lease ${countdown(Date.parse(end) - now)}</span>` : null;
}

function StateCell({ model }) {
  const progress = ['loading', 'waiting', 'fetching'].includes(model.state) ? progressOf(model) : null;
  const more = progress?.percent != null ? `${progress.percent} %` : model.file_error && model.state !== 'broken' ? 'file broken' : null;
  return html`<span title=${progress?.words || model.file_error || model.last_failure || undefined}><${State} of=${model.state} more=${more} /></span>`;
}

const COLUMNS = [
  { id: 'pin', title: 'Pin', quiet: true, width: '28px', hide: 700, cell: it => html`<${PinButton} name=${it.model} />` },
  { id: 'model', title: 'Model', sort: true, grow: 3, least: 190, cell: (it, width) => html`<span class="stack"><${Name} of=${it.model} />${it.override?.expires_at && width >= 700 && html`<${Lease} model=${it} />`}${width < 700 && html`<span class="row-small"><${StateCell} model=${it} /><span class="prio">P${it.priority}</span><${Lease} model=${it} />${
    it.waiting > 0 && html`<span class="warn figure">${it.waiting} waiting</span>`}</span>`}</span>` },
  { id: 'state', title: 'State', sort: true, width: '134px', hide: 700, cell: it => html`<${StateCell} model=${it} />` },
  { id: 'priority', title: 'Priority', sort: true, first: true, width: '92px', hide: 820, cell: it => html`<${PriorityField} model=${it} />` },
  { id: 'replicas', title: 'Replicas', sort: true, first: true, right: true, width: '66px', hide: 1180, cell: it => html`<span class="figure">${running(it) || html`<span class="faint">0</span>`}${it.wished_replicas > running(it) && html`<span class="soft"> of ${it.wished_replicas}</span>`}</span>` },
  { id: 'flight', title: 'In flight', sort: true, first: true, right: true, width: '60px', hide: 1090, cell: it => html`<${Figure} of=${flight(it)} />` },
  { id: 'waiting', title: 'Waiting', sort: true, first: true, right: true, width: '60px', hide: 740, cell: it => html`<${Figure} of=${it.waiting} tone="warn" />` },
  { id: 'used', title: 'Last used', sort: true, first: true, width: '88px', hide: 830, cell: it => html`<${Ago} at=${it.last_used_at} />` },
  { id: 'load', title: 'Load time', sort: true, right: true, width: '76px', hide: 1270, cell: it => html`<span class="figure" title=${it.load_times.map(time => `${time.source}: ${span(time.ms)}`).join('\n') || 'expected; nothing was measured yet'}>${span(it.load_ms_expected)}</span>` },
  { id: 'memory', title: 'Memory', sort: true, first: true, right: true, width: '150px', hide: 965, cell: it => html`<${Memory} model=${it} />` },
  { id: 'requests', title: 'Requests', sort: true, first: true, right: true, width: '88px', hide: 1460, cell: it => html`<${Figure} of=${it.requests_total} />` },
  { id: 'engine', title: 'Engine', width: '80px', hide: 1370, cell: it => html`<span class="soft">${it.engine}</span>` },
  { id: 'act', title: 'Actions', quiet: true, width: '62px', right: true, cell: it => html`<span class="row-actions"><button type="button" class="icon-button" tabindex="-1" title="Load or plan" aria-label=${`Load or plan ${short(it.model, 60)}`} onClick=${() => openPlan(it.model)}><${Icon} name="up" /></button><${Menu} label=${`Actions for ${short(it.model, 60)}`} items=${actionsOf(it)} /></span>` },
];

const Figure = ({ of: number, tone = '' }) => html`<span class=${`figure ${number ? tone : 'faint'}`}>${number.toLocaleString('en')}</span>`;

function Memory({ model }) {
  const real = measured(model), guess = estimated(model);
  const title = [`${bytes(model.needs.bytes_per_device)} on each of ${count(model.needs.devices, 'device')} (${sourceOf(model.needs)})`, model.estimated_bytes_per_device !== null && `estimated: ${bytes(guess)}`, real !== null && `measured: ${bytes(real)}`, ...model.learned.map(it => `planned with on ${it.kind}: ${bytes(it.bytes_per_device)}`)];
  return html`<span class="figure" title=${title.filter(Boolean).join('\n')}>${real !== null ? html`${bytes(real)} <span class="soft">of ${bytes(needed(model))}</span>` : html`<span class="soft">(${bytes(needed(model))})</span>`}</span>`;
}

function PinButton({ name }) {
  const isPinned = settings.use(it => it.pins.includes(name));
  return html`<button type="button" tabindex="-1" class=${`pin ${isPinned ? 'on' : ''}`} aria-pressed=${String(isPinned)} aria-label=${`Pin ${short(name, 60)}`} title=${isPinned ? 'Unpin' : 'Pin to the top'} onClick=${() => togglePin(name)}><${Icon} name="pin" size=${14} /></button>`;
}

export function Models() {
  const models = live.use(it => it.models), pins = settings.use(it => it.pins), { query } = route.use(), may = useMayChange();
  const [text, setText] = useState(query.find ?? ''), [sort, setSort] = useState({ by: 'state', down: false }), [chosen, setChosen] = useState(new Set());
  const group = GROUPS[query.state] ? query.state : 'all';
  // The URL follows the field. The field only changes with another URL.
  const own = useRef(query.find ?? '');
  useEffect(() => {
    // Reads the current value: the effect may run after another letter was typed, and would remove it.
    const find = route.get().query.find ?? '';
    if (find !== own.current) { own.current = find; setText(find); }
  }, [query.find]);
  const rows = useMemo(() => arranged(models, { text, group, sort, pins }), [models, text, group, sort, pins]);
  const counts = useMemo(() => Object.fromEntries(Object.entries(GROUPS).map(([name, [, is]]) => [name, models.filter(is).length])), [models]);
  const list = [...chosen].filter(it => byName.has(it));
  const find = value => { own.current = value; setText(value); replace('models', { ...route.get().query, find: value }); };
  return html`<${Head} title="Models" about=${rows.length === models.length ? count(models.length, 'model') : `${rows.length} of ${count(models.length, 'model')}`}><${Search} label="Find a model" value=${text} onInput=${find} /><//>
    <div class="filters" role="group" aria-label="Filter">${Object.entries(GROUPS).filter(([name]) => name === 'all' || name === group || counts[name]).map(([name, [word]]) => html`<button type="button" key=${name} class="chip" aria-pressed=${String(group === name)} data-tone=${name === 'trouble' ? 'bad' : ''}
      onClick=${() => replace('models', { ...query, state: name === 'all' ? '' : name })}>${word} <span class="figure">${counts[name]}</span></button>`)}</div>
    <${Table} label="Models" columns=${COLUMNS} rows=${rows} id=${it => it.model} sort=${sort} onSort=${setSort} chosen=${may ? chosen : undefined} onChoose=${setChosen} onOpen=${it => openModel(it.model)} opened=${query.model}
      hold=${{ by: `${text} ${group} ${sort.by} ${sort.down} ${pins.join(' ')}`, find: name => byName.get(name) }} rowHeight=${innerWidth < 760 ? 60 : 44} empty=${html`<${Empty} icon="models" title=${models.length ? 'No matching model' : 'The catalogue is empty'}>${models.length ? 'Search for another part of the name, or remove the filter.' : 'Add a file to the folder of models, or register one.'}<//>`} />
    <${VirtualModels} />
    ${list.length > 0 && html`<div class="bulk" role="region" aria-label="Chosen models"><span><b class="figure">${list.length}</b> chosen</span>
      <${Button} icon="up" disabled=${!may} title=${may ? undefined : READ_ONLY} onClick=${() => openBulkLoad(list)}>Load…<//><${Button} icon="eject" disabled=${!may} onClick=${() => openUnload(list)}>Unload…<//><${Button} icon="bars" disabled=${!may} onClick=${() => openPriority(list)}>Priority…<//>
      <${Button} onClick=${() => setChosen(new Set())}>Clear selection<//></div>`}`;
}
