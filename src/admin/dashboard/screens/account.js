// The account of device time in a month: charts by hour, who used the devices and who held them idle, and each device's wall time.
import { html, useEffect, useMemo, useState } from '../lib/view.js';
import { BASE, get } from '../lib/api.js';
import { sum } from '../lib/device.js';
import { bytes, span } from '../lib/text.js';
import { openModel, replace, route } from '../lib/route.js';
import { Choice, Empty, Head, Loading, Name, Problem, Search } from '../parts/bits.js';
import { Columns, figure } from '../parts/columns.js';
import { useAgain } from '../lib/me.js';
import { Icon } from '../parts/icons.js';
import { Table } from '../parts/table.js';

/** States with their words, in the order of a column from the bottom. */
const STATES = [['used', 'used by requests'], ['idle', 'held idle'], ['loading', 'loading'], ['asleep', 'asleep'], ['foreign', 'other programs'], ['cordoned', 'cordoned'], ['free', 'free'], ['not_known', 'not known']];
const WORDS = Object.fromEntries(STATES), HOUR = 3600;
const hours = seconds => (seconds / HOUR).toLocaleString('en', { maximumFractionDigits: 2 });
const held = sums => sum(STATES.slice(0, 4), ([state]) => sums.seconds[state]);
const kwh = joules => joules === null ? 'unknown' : `${(joules / 3_600_000).toLocaleString('en', { maximumFractionDigits: 3 })} kWh`;

/** The eleven months before this one, newest first, and the chosen one if it is older. */
function earlier(present, chosen) {
  const [year, month] = present.split('-').map(Number), all = Array.from({ length: 11 }, (_, nth) => new Date(Date.UTC(year, month - 2 - nth, 1)).toISOString().slice(0, 7));
  return chosen && !all.includes(chosen) ? [...all, chosen] : all;
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
  column('used', 'Used, h', it => it.seconds.used, hours), column('batches', 'Batches, h', it => it.seconds.used_by_batches ?? 0, hours, 1060), column('idle', 'Idle, h', it => it.seconds.idle, hours, 520), column('loading', 'Loading, h', it => it.seconds.loading, hours, 760),
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

const PERIODS = [['hour', 'Hour'], ['day', 'Day'], ['week', 'Week']], STEPS = { hour: 'minute', day: 'quarter of an hour', week: 'hour' };

/** What the pool did in the last hour, day or week. */
function Recent() {
  const [period, setPeriod] = useState('day'), [usage, failure] = useAgain('/admin/usage', { charts: period }, 60_000), all = usage?.charts;
  const chart = (title, word, of, more) => html`<${Columns} title=${title} word=${word} step=${STEPS[period]} all=${all} of=${of} ...${more} />`;
  const seconds = it => it === null ? 'no stream' : span(it * 1000);
  return html`<section aria-label="Over time"><div class="recent-head"><h2>Over time</h2><${Choice} label="Time of the charts" value=${period} of=${PERIODS} onChange=${setPeriod} /></div>
    ${failure && !all ? html`<${Problem} failure=${failure} />` : !all ? html`<${Loading} />` : html`<div class="charts">
      ${chart('Requests', 'per second', it => [['requests', it.requests / it.seconds]])}
      ${chart('Tokens', 'per second', it => [['prompt', it.prompt_tokens / it.seconds], ['completion', it.completion_tokens / it.seconds]], { words: { prompt: 'prompts', completion: 'responses' }, legend: true })}
      ${chart('Time to first token', 's', it => [['p50', it.first_token_p50_seconds ?? 0], ['p95', (it.first_token_p95_seconds ?? 0) - (it.first_token_p50_seconds ?? 0)]], { words: { p50: 'half of the requests', p95: '95 of 100' }, legend: true, lines: it => [`half of the requests: ${seconds(it.first_token_p50_seconds)}`, `95 of 100: ${seconds(it.first_token_p95_seconds)}`] })}
      ${chart('Mean wait of requests that waited', 's', it => [['waits', it.waited ? it.waited_seconds / it.waited : 0]])}
      ${chart('Devices used by requests', '%', it => [['used', 100 * (it.used_ratio ?? 0)]], { lines: it => [it.used_ratio === null ? 'not known' : `used: ${figure(100 * it.used_ratio)} %`] })}</div>`}</section>`;
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
    <${Recent} /><h2 class="table-title">${month || 'This month'}</h2>
    ${failure ? html`<${Problem} failure=${failure} />` : !usage ? html`<${Loading} />` : usage.devices.length === 0 ? html`<${Empty} icon="report" title="Nothing is counted in this month">The account is written every minute.<//>` : html`
      <div class="tiles" role="group" aria-label="In all">${tile(hours(sum(usage.devices, it => it.wall_seconds)), 'device hours')}${tile(hours(total.seconds.used), 'hours used')}${tile(hours(total.seconds.idle), 'hours held idle')}${tile(hours(held(total)), 'hours held')}${tile(kwh(total.energy_joules), 'energy of models')}${total.cost !== null && tile(total.cost.toFixed(2), 'cost')}</div>
      ${charts && html`<div class="charts"><${Columns} title="Devices" word="device hours" words=${WORDS} all=${charts} of=${it => STATES.map(([state]) => [state, it.seconds[state] / HOUR])} />
        <${Columns} title="Requests" word="per second" all=${charts} of=${it => [['requests', it.requests / HOUR]]} />
        <${Columns} title="Mean wait of requests that waited" word="s" all=${charts} of=${it => [['waits', it.waited ? it.waited_seconds / it.waited : 0]]} /></div>`}
      <${Devices} of=${usage.devices} />
      ${!month && html`<${Groups} />`}
      <${Table} label="By model and key" columns=${BY_PAYER} rows=${rows} id=${it => `${it.model}\n${it.group}\n${it.key}`} sort=${sort} onSort=${setSort} onOpen=${it => openModel(it.model)} opened=${query.model} rowHeight=${innerWidth < 1080 ? 54 : 44} empty=${html`<${Empty} icon="report" title="No model held memory">Models that are loaded appear here, with the keys that used them.<//>`} />`}`;
}
