// The account of device time in a month: charts by hour, who used the devices and who held them idle, and each device's wall time.
import { html, useEffect, useMemo, useState } from '../lib/view.js';
import { BASE, get } from '../lib/api.js';
import { sum } from '../lib/device.js';
import { bytes, clock } from '../lib/text.js';
import { openModel, replace, route } from '../lib/route.js';
import { Empty, Head, Loading, Name, Problem, Search } from '../parts/bits.js';
import { useAgain } from '../lib/me.js';
import { Icon } from '../parts/icons.js';
import { Table } from '../parts/table.js';

/** States with their words, in the order of a column from the bottom. */
const STATES = [['used', 'used by requests'], ['idle', 'held idle'], ['loading', 'loading'], ['asleep', 'asleep'], ['foreign', 'other programs'], ['cordoned', 'cordoned'], ['free', 'free'], ['not_known', 'not known']];
const HOUR = 3600, WIDTH = 720, HEIGHT = 110;
const hours = seconds => (seconds / HOUR).toLocaleString('en', { maximumFractionDigits: 2 });
const held = sums => sum(STATES.slice(0, 4), ([state]) => sums.seconds[state]);
const kwh = joules => joules === null ? 'unknown' : `${(joules / 3_600_000).toLocaleString('en', { maximumFractionDigits: 3 })} kWh`;
const figure = number => number.toLocaleString('en', { maximumFractionDigits: number < 10 ? 2 : 0 });

/** The eleven months before this one, newest first, and the chosen one if it is older. */
function earlier(present, chosen) {
  const [year, month] = present.split('-').map(Number), all = Array.from({ length: 11 }, (_, nth) => new Date(Date.UTC(year, month - 2 - nth, 1)).toISOString().slice(0, 7));
  return chosen && !all.includes(chosen) ? [...all, chosen] : all;
}

/** A column per hour, made of parts. `of` gives the parts of an hour as state and value. */
function Columns({ title, word, all, of, most }) {
  const values = all.map(hour => sum(of(hour), ([, value]) => value)), top = most ?? Math.max(...values), width = WIDTH / all.length;
  const sums = new Map();
  for (const hour of all) for (const [state, value] of of(hour)) sums.set(state, (sums.get(state) ?? 0) + value);
  const about = hour => [clock(hour.at), ...of(hour).filter(([, value]) => value > 0).map(([state, value]) => `${STATES.find(([name]) => name === state)?.[1] ?? word}: ${figure(value)}`)].join('\n');
  const column = (hour, nth) => {
    let y = HEIGHT;
    return html`<g key=${hour.at}><title>${about(hour)}</title><rect class="chart-hit" x=${nth * width} y="0" width=${width} height=${HEIGHT} />${of(hour).map(([state, value]) => { const high = HEIGHT * value / (top || 1); y -= high; return html`<rect key=${state} class="chart-part" data-state=${state} x=${nth * width + width * 0.08} y=${y} width=${width * 0.84} height=${high} />`; })}</g>`;
  };
  return html`<figure class="chart"><figcaption><h2>${title}</h2><span class="soft figure">at most ${figure(Math.max(...values))} ${word}</span></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${title} by hour, at most ${figure(Math.max(...values))} ${word}`}>${all.map(column)}</svg>
    <div class="chart-words soft"><span>${clock(all[0].at)}</span><span>${clock(all.at(-1).at)}</span></div></figure>`;
}

/** Hours without gaps, which a chart needs. */
function withoutGaps(list) {
  const known = new Map(list.map(it => [Date.parse(it.at), it])), first = Math.min(...known.keys()), last = Math.max(...known.keys()), all = [];
  const empty = Object.fromEntries(STATES.map(([state]) => [state, 0]));
  for (let at = first; at <= last; at += HOUR * 1000) all.push(known.get(at) ?? { at: new Date(at).toISOString(), seconds: empty, requests: 0, waited: 0, waited_seconds: 0 });
  return all;
}

const column = (id, title, of, cell, hide) => ({ id, title, sort: true, first: true, right: true, width: '96px', hide, of, cell: it => html`<span class="figure">${cell(of(it))}</span>` });
const payer = it => [it.group, it.name || it.key || '—'].filter(Boolean).join('/');
const BY_PAYER = [
  { id: 'model', title: 'Model', sort: true, grow: 2, least: 150, of: it => it.model, cell: (it, width) => html`<span class="stack"><${Name} of=${it.model} />${width < 560 && html`<span class="soft small clip">${payer(it)}</span>`}</span>` },
  { id: 'key', title: 'Key', sort: true, grow: 1, least: 110, hide: 560, of: it => it.name, cell: it => html`<${Name} of=${payer(it)} swatch=${false} />` },
  column('used', 'Used, h', it => it.seconds.used, hours), column('idle', 'Idle, h', it => it.seconds.idle, hours, 520), column('loading', 'Loading, h', it => it.seconds.loading, hours, 760),
  column('asleep', 'Asleep, h', it => it.seconds.asleep, hours, 900), column('energy', 'Energy', it => it.energy_joules ?? -1, it => it < 0 ? '—' : kwh(it), 980), column('cost', 'Cost', it => it.cost ?? -1, it => it < 0 ? '—' : it.toFixed(2), 640),
];

function Devices({ of: devices }) {
  return html`<section class="lines-card"><h2>Devices</h2>${devices.map(it => html`<div class="account-device" key=${it.device}><span class="clip">${it.device}</span>
    <span class="meter account-meter" role="img" aria-label=${STATES.map(([state, word]) => `${word}: ${hours(it.seconds[state])} h`).join(', ')}>${STATES.map(([state, word]) => html`<span key=${state} class="account-part" data-state=${state} title=${`${word}: ${hours(it.seconds[state])} h`} style=${{ '--part': it.seconds[state] / (it.wall_seconds || 1) }}></span>`)}</span>
    <span class="figure right">${it.wall_seconds > 0 ? `${hours(it.wall_seconds)} h` : bytes(it.byte_seconds / HOUR) + '·h'}</span></div>`)}
    <ul class="account-legend soft small">${STATES.map(([state, word]) => html`<li key=${state}><span class="account-swatch" data-state=${state} aria-hidden="true"></span>${word}</li>`)}</ul></section>`;
}

const percent = part => `${(100 * part).toLocaleString('en', { maximumFractionDigits: 1 })} %`;

/** The part of a group's quota that is used, and what happens at its end. */
function Quota({ of: { gpu_hours, tokens, at_end, used_ratio } }) {
  const most = [gpu_hours !== null && `${figure(gpu_hours)} GPU hours`, tokens !== null && `${figure(tokens)} tokens`].filter(Boolean).join(' or ');
  const words = `${percent(used_ratio)} of ${most}, then ${at_end}`;
  return html`<span class="stack" title=${words}><span class="meter group-meter" role="img" aria-label=${words} data-over=${used_ratio >= 1 ? 'yes' : undefined}><span style=${{ '--part': Math.min(1, used_ratio) }}></span></span><span class="soft small clip">${percent(used_ratio)} of ${most}, then ${at_end}</span></span>`;
}

const GROUPS = [
  { id: 'group', title: 'Group', grow: 2, least: 120, cell: (it, width) => html`<span class="stack" style=${{ '--depth': it.path.split('/').length - 1 }}><b class="clip group-name" title=${it.path}>${it.group}</b><span class="soft small clip group-name">${width < 760 && it.quota ? `${percent(it.quota.used_ratio)} of quota` : `weight ${it.weight}, ${it.class_max}`}</span></span>` },
  { id: 'share', title: 'Share now', right: true, width: '84px', cell: it => html`<span class="figure">${percent(it.share_now)}</span>` },
  { id: 'members', title: 'Members', right: true, width: '80px', hide: 900, cell: it => html`<span class="figure">${it.members}</span>` },
  { id: 'waiting', title: 'Waiting', right: true, width: '76px', hide: 560, cell: it => html`<span class="figure">${it.waiting}</span>` },
  { id: 'running', title: 'Running', right: true, width: '76px', hide: 560, cell: it => html`<span class="figure">${it.running}</span>` },
  { id: 'tokens', title: 'Tokens', right: true, width: '110px', hide: 640, cell: it => html`<span class="figure">${figure(it.tokens)}</span>` },
  { id: 'hours', title: 'Hours', right: true, width: '64px', cell: it => html`<span class="figure">${hours(it.device_seconds)}</span>` },
  { id: 'quota', title: 'Quota', grow: 2, least: 140, hide: 760, cell: it => it.quota ? html`<${Quota} of=${it.quota} />` : html`<span class="faint">—</span>` },
];

/** The groups with their present requests, and their use in the current month. */
function Groups() {
  const [list, failure] = useAgain('/admin/groups', undefined, 5000);
  if (failure) return html`<${Problem} failure=${failure} />`;
  if (!list?.groups.length) return null;
  return html`<h2 class="table-title">Groups in ${list.month}</h2><${Table} label="Groups" columns=${GROUPS} rows=${list.groups} id=${it => it.path} rowHeight=${54} empty=${null} /><h2 class="table-title">Models and keys</h2>`;
}

export function Account() {
  // The pool's time zone decides which month is the present one.
  const [present, setPresent] = useState(new Date().toISOString().slice(0, 7));
  const { query } = route.use(), month = /^\d{4}-\d\d$/.test(query.month ?? '') ? query.month : '';
  const [usage, setUsage] = useState(null), [failure, setFailure] = useState(null), [find, setFind] = useState(''), [sort, setSort] = useState({ by: 'used', down: true });
  useEffect(() => {
    const abort = new AbortController();
    setUsage(null);
    get('/admin/usage', { month }, { signal: abort.signal }).then(it => { setUsage(it); setFailure(null); if (!month) setPresent(it.month); }, it => { if (!abort.signal.aborted) setFailure(it); });
    return () => abort.abort();
  }, [month]);
  const rows = useMemo(() => {
    const { of } = BY_PAYER.find(it => it.id === sort.by), text = find.toLowerCase(), found = (usage?.rows ?? []).filter(it => `${it.model} ${it.group} ${it.name} ${it.key}`.toLowerCase().includes(text));
    return found.sort((one, other) => { const a = of(one), b = of(other); return (a < b ? -1 : a > b ? 1 : 0) * (sort.down ? -1 : 1) || (one.model < other.model ? -1 : 1); });
  }, [usage, find, sort]);
  const charts = useMemo(() => usage?.hours.length ? withoutGaps(usage.hours) : null, [usage]);
  const tile = (value, word) => html`<div class="tile"><span class="tile-value figure">${value}</span><span class="tile-word">${word}</span></div>`, total = usage?.total;
  return html`<${Head} title="Usage" about=${usage ? `Device time in ${usage.month}. Days begin at midnight in ${usage.time_zone}.` : undefined}><${Search} label="Find a model or key" value=${find} onInput=${setFind} /><label class="select"><span class="quiet">Month</span><select value=${month} onChange=${({ currentTarget: { value } }) => replace('account', value ? { month: value } : {})}><option value="">This month</option>${earlier(present, month).map(name => html`<option value=${name} key=${name}>${name}</option>`)}</select></label>
      <a class="button" href=${`${BASE}/admin/usage?${new URLSearchParams({ ...(month && { month }), format: 'csv' })}`} download><${Icon} name="download" /><span>CSV</span></a><//>
    ${failure ? html`<${Problem} failure=${failure} />` : !usage ? html`<${Loading} />` : usage.devices.length === 0 ? html`<${Empty} icon="report" title="Nothing is counted in this month">The account is written every minute.<//>` : html`
      <div class="tiles" role="group" aria-label="In all">${tile(hours(sum(usage.devices, it => it.wall_seconds)), 'device hours')}${tile(hours(total.seconds.used), 'hours used')}${tile(hours(total.seconds.idle), 'hours held idle')}${tile(hours(held(total)), 'hours held')}${tile(kwh(total.energy_joules), 'energy of models')}${total.cost !== null && tile(total.cost.toFixed(2), 'cost')}</div>
      ${charts && html`<div class="charts"><${Columns} title="Devices" word="device hours" all=${charts} of=${it => STATES.map(([state]) => [state, it.seconds[state] / HOUR])} />
        <${Columns} title="Requests" word="per second" all=${charts} of=${it => [['requests', it.requests / HOUR]]} />
        <${Columns} title="Mean wait of requests that waited" word="s" all=${charts} of=${it => [['waits', it.waited ? it.waited_seconds / it.waited : 0]]} /></div>`}
      <${Devices} of=${usage.devices} />
      ${!month && html`<${Groups} />`}
      <${Table} label="By model and key" columns=${BY_PAYER} rows=${rows} id=${it => `${it.model}\n${it.group}\n${it.key}`} sort=${sort} onSort=${setSort} onOpen=${it => openModel(it.model)} opened=${query.model} rowHeight=${innerWidth < 1080 ? 54 : 44} empty=${html`<${Empty} icon="report" title="No model held memory">Models that are loaded appear here, with the keys that used them.<//>`} />`}`;
}
