// Statistics for a day, a week or a month: requests, waits, loads, evictions and refusals, per model, per group and in total.
import { html, useEffect, useMemo, useState } from '../lib/view.js';
import { BASE, get } from '../lib/api.js';
import { clean, count, short, span } from '../lib/text.js';
import { sum } from '../lib/device.js';
import { openModel, replace, route } from '../lib/route.js';
import { Choice, Clock, Empty, Head, Loading, Name, Problem, Search } from '../parts/bits.js';
import { Icon } from '../parts/icons.js';
import { Table } from '../parts/table.js';

const RANGES = [['1d', 'Day'], ['7d', 'Week'], ['30d', 'Month']];
const all = reasons => sum(Object.values(reasons), it => it);
const mean = (seconds, number) => number ? span(seconds * 1000 / number) : '—';
const words = reasons => Object.entries(reasons).map(([reason, number]) => `${reason.replaceAll('_', ' ')}: ${number}`).join('\n');

const figure = (id, title, of, hide, tone = '') => ({ id, title, sort: true, first: true, right: true, width: '82px', hide, of, cell: it => html`<span class=${`figure ${of(it) ? tone : 'faint'}`}>${of(it).toLocaleString('en')}</span>` });
const reasons = (id, title, of, hide, tone) => ({ ...figure(id, title, it => all(of(it)), hide, tone), cell: it => html`<span class=${`figure ${all(of(it)) ? tone : 'faint'}`} title=${words(of(it))}>${all(of(it)).toLocaleString('en')}</span>` });
const COLUMNS = [
  { id: 'model', title: 'Model', sort: true, grow: 3, least: 210, of: it => it.model, cell: (it, width) => html`<span class="stack"><${Name} of=${it.model} />${width < 800 && html`<span class="soft small clip">${[[it.waited, 'waited'], [it.loads, it.loads === 1 ? 'load' : 'loads'], [all(it.evictions), 'evicted'], [it.failed_loads + it.crashes, 'failed'], [all(it.refusals), 'refused']].filter(([number]) => number).map(([number, word]) => `${number.toLocaleString('en')} ${word}`).join(' · ')}</span>`}</span>` },
  figure('requests', 'Requests', it => it.requests), figure('waited', 'Waited', it => it.waited, 620),
  { id: 'wait', title: 'Mean wait', sort: true, first: true, right: true, width: '90px', hide: 940, of: it => it.waited_seconds / (it.waited || 1), cell: it => html`<span class="figure">${mean(it.waited_seconds, it.waited)}</span>` },
  figure('cold', 'Cold starts', it => it.cold_starts, 1060), figure('loads', 'Loads', it => it.loads, 420),
  { id: 'load', title: 'Mean load', sort: true, first: true, right: true, width: '90px', hide: 1160, of: it => it.load_seconds / (it.loads || 1), cell: it => html`<span class="figure" title=${`at most ${span(it.load_seconds_longest * 1000)}`}>${mean(it.load_seconds, it.loads)}</span>` },
  figure('failed', 'Failed', it => it.failed_loads + it.crashes, 720, 'bad-words'), reasons('evicted', 'Evicted', it => it.evictions, 500, 'warn'), reasons('unloaded', 'Unloaded', it => it.unloads, 1260), reasons('refused', 'Refused', it => it.refusals, 800, 'bad-words'),
];

export function Report() {
  const { query } = route.use(), from = RANGES.some(([name]) => name === query.from) ? query.from : '7d';
  const [report, setReport] = useState(null), [failure, setFailure] = useState(null), [find, setFind] = useState(''), [sort, setSort] = useState({ by: 'requests', down: true });
  useEffect(() => {
    const abort = new AbortController();
    setReport(null);
    get('/admin/report', { from }, { signal: abort.signal }).then(it => { setReport(it); setFailure(null); }, it => { if (!abort.signal.aborted) setFailure(it); });
    return () => abort.abort();
  }, [from]);
  const rows = useMemo(() => {
    const { of } = COLUMNS.find(it => it.id === sort.by), found = (report?.models ?? []).filter(it => it.model.toLowerCase().includes(find.toLowerCase()));
    return found.sort((one, other) => { const a = of(one), b = of(other); return (a < b ? -1 : a > b ? 1 : 0) * (sort.down ? -1 : 1) || (one.model < other.model ? -1 : 1); });
  }, [report, find, sort]);
  const file = format => `${BASE}/admin/report?${new URLSearchParams({ from, format })}`, total = report?.total;
  const tile = (value, word, tone) => html`<div class="tile" data-tone=${tone}><span class="tile-value figure">${value}</span><span class="tile-word">${word}</span></div>`;
  return html`<${Head} title="Report" about=${report ? html`<${Clock} at=${report.from} /> to <${Clock} at=${report.to} />` : undefined}><${Search} label="Find a model" value=${find} onInput=${setFind} /><${Choice} label="Time" value=${from} of=${RANGES} onChange=${it => replace('report', { from: it })} />
      <a class="button" href=${file('csv')} download><${Icon} name="download" /><span>CSV</span></a><a class="button" href=${file('html')} target="_blank" rel="noopener"><${Icon} name="audit" /><span>HTML</span></a><//>
    ${failure ? html`<${Problem} failure=${failure} />` : !report ? html`<${Loading} />` : html`<div class="tiles" role="group" aria-label="In all">${tile(total.requests.toLocaleString('en'), 'requests')}${tile(total.waited.toLocaleString('en'), 'waited in a queue')}${tile(mean(total.waited_seconds, total.waited), 'mean wait of those')}
      ${tile(total.cold_starts, 'cold starts')}${tile(total.loads, 'loads')}${tile(mean(total.load_seconds, total.loads), 'mean load')}${tile(all(total.evictions), 'evictions')}${tile(total.failed_loads + total.crashes, 'failures', total.failed_loads + total.crashes ? 'bad' : '')}${tile(all(total.refusals), 'refusals', all(total.refusals) ? 'bad' : '')}</div>
      <div class="columns-2"><${Reasons} title="Evictions" of=${total.evictions} /><${Reasons} title="Other unloads" of=${total.unloads} /><${Reasons} title="Refusals" of=${total.refusals} /></div>
      <${Table} label="By model" columns=${COLUMNS} rows=${rows} id=${it => it.model} sort=${sort} onSort=${setSort} onOpen=${it => openModel(it.model)} opened=${query.model} rowHeight=${innerWidth < 1080 ? 54 : 44} empty=${html`<${Empty} icon="audit" title="No activity">The history has no request and no load in this period.<//>`} />
      <${Groups} of=${report.groups} file=${`${file('csv')}&by=group`} />`}`;
}

/** Requests, waits, refusals and tokens of each group, without the groups below it. */
function Groups({ of, file }) {
  if (!of.length) return null;
  return html`<section aria-label="By group"><h2 class="table-title">By group <a class="button" href=${file} download><${Icon} name="download" /><span>CSV</span></a></h2>
    <div class="table-frame"><table class="plain-table" aria-label="By group"><thead><tr><th>Group</th><th class="right">Requests</th><th class="right wide-only">Waited</th><th class="right wide-only">Mean wait</th><th class="right wide-only">Cold starts</th><th class="right wide-only">Refused</th><th class="right">Tokens</th></tr></thead>
      <tbody>${of.map(it => html`<tr key=${it.group}><td class="fill clip" title=${clean(it.group)}>${short(it.group, 60)}</td><td class="right figure">${it.requests.toLocaleString('en')}</td><td class="right figure wide-only">${it.waited.toLocaleString('en')}</td><td class="right figure wide-only">${mean(it.waited_seconds, it.waited)}</td><td class="right figure wide-only">${it.cold_starts.toLocaleString('en')}</td>
        <td class="right wide-only"><span class=${`figure ${all(it.refusals) ? 'bad-words' : 'faint'}`} title=${words(it.refusals)}>${all(it.refusals).toLocaleString('en')}</span></td><td class="right figure">${it.tokens.toLocaleString('en')}</td></tr>`)}</tbody></table></div></section>`;
}

function Reasons({ title, of }) {
  const list = Object.entries(of).sort(([, one], [, other]) => other - one), most = Math.max(1, ...list.map(([, number]) => number));
  if (!list.length) return null;
  return html`<section class="lines-card"><h2>${title} <span class="soft figure">${count(all(of), 'time')}</span></h2>${list.map(([reason, number]) => html`<div class="reason" key=${reason}><span>${reason.replaceAll('_', ' ')}</span><span class="meter" aria-hidden="true"><span style=${{ '--part': number / most }}></span></span><span class="figure right">${number.toLocaleString('en')}</span></div>`)}</section>`;
}
