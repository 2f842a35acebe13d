// The audit log: each change with its sender, origin and result.
import { html, useEffect, useState } from '../lib/view.js';
import { get } from '../lib/api.js';
import { above } from '../lib/history.js';
import { clean, short } from '../lib/text.js';
import { replace, route } from '../lib/route.js';
import { Button, Clock, Empty, Head, IconButton, Loading, Problem, Search } from '../parts/bits.js';
import { Table } from '../parts/table.js';

const PAGE = 200;
const what = it => Object.entries(it.what).map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`).join(', ');

const COLUMNS = [
  { id: 'at', title: 'When', width: '108px', cell: it => html`<${Clock} at=${it.at} />` },
  { id: 'who', title: 'Who', grow: 1, least: 90, cell: (it, width) => html`<span class="stack"><span class="clip" title=${clean(`${it.name ?? ''} ${it.key ?? it.subject ?? ''}`)}>${short(it.name ?? it.subject ?? it.key ?? 'unknown', 40)} <span class="soft figure">${it.key ?? ''}</span>${it.group && html` <span class="soft small">${short(it.group, 40)}</span>`}</span>${width < 560 && html`<span class="soft figure small clip">${it.method} ${short(it.path, 60)}</span>`}${width < 760 && what(it) && html`<span class="soft small clip" title=${clean(what(it)).slice(0, 2000)}>${short(what(it), 160)}</span>`}</span>` },
  { id: 'where', title: 'From', width: '120px', hide: 900, cell: it => html`<span class="figure soft">${clean(it.client)}</span>` },
  { id: 'path', title: 'Request', grow: 1, least: 120, hide: 560, cell: it => html`<span class="figure"><b>${it.method}</b> ${short(it.path, 60)}</span>` },
  { id: 'what', title: 'What', grow: 2, hide: 760, cell: it => html`<span class="soft" title=${clean(what(it)).slice(0, 2000)}>${short(what(it), 160)}</span>` },
  { id: 'status', title: 'Status', right: true, width: '72px', cell: it => html`<span class=${`figure ${it.status >= 400 ? 'bad-words' : ''}`}>${it.status}</span>` },
];

export function Audit() {
  const { query } = route.use(), [entries, setEntries] = useState(null), [next, setNext] = useState(null), [failure, setFailure] = useState(null), [find, setFind] = useState('');
  useEffect(() => {
    let over = false;
    setEntries(null);
    get('/admin/audit', { limit: PAGE, of: query.of, path: query.path, group: query.group }).then(it => { if (!over) { setEntries([...it.entries].reverse()); setNext(it.next_before); setFailure(null); } }, it => { if (!over) setFailure(it); });
    return () => { over = true; };
  }, [query.of, query.path, query.group]);
  const older = async () => {
    try {
      const it = await get('/admin/audit', { limit: PAGE, of: query.of, path: query.path, group: query.group, before: next });
      setEntries(before => [...before, ...it.entries.reverse()]);
      setNext(it.next_before);
    } catch (error) { setFailure(error); }
  };
  const rows = (entries ?? []).filter(it => `${it.name} ${it.key} ${it.path} ${it.client} ${what(it)}`.toLowerCase().includes(find.toLowerCase()));
  const groups = [...new Set([query.group, ...(entries ?? []).flatMap(it => [...above(it.group), ...above(it.key_group)])].filter(Boolean))].sort();
  return html`<${Head} title="Audit" about="Every request that changed something or tried to"><${Search} label="Find in the audit" value=${find} onInput=${setFind} /><//>
    ${(query.of || groups.length > 0) && html`<div class="filters">${groups.length > 0 && html`<label class="select"><span class="quiet">Group</span><select value=${query.group ?? ''} onChange=${it => replace('audit', { ...query, group: it.currentTarget.value })}><option value="">Every group</option>${groups.map(path => html`<option value=${path} key=${path}>${short(path, 60)}</option>`)}</select></label>`}
      ${query.of && html`<span class="chip on">${short(query.of, 40)}<${IconButton} icon="close" label="All" onClick=${() => replace('audit', { ...query, of: '' })} /></span>`}</div>`}
    ${failure ? html`<${Problem} failure=${failure} />` : !entries ? html`<${Loading} />` : html`<${Table} label="Audit" columns=${COLUMNS} rows=${rows} id=${it => String(it.id)} rowHeight=${innerWidth < 760 ? 66 : innerWidth < 1000 ? 52 : 40} empty=${html`<${Empty} icon="audit" title="No changes yet" />`} />${next && html`<p class="center"><${Button} onClick=${older}>Older<//></p>`}`}`;
}
