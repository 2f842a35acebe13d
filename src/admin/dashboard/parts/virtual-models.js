// Virtual models below the list of models: the rule, the members with their states, and the member of the next request.
import { html, useEffect, useState } from '../lib/view.js';
import { get } from '../lib/api.js';
import { openModel } from '../lib/route.js';
import { Name, State } from './bits.js';
import { Table } from './table.js';

const READ_MS = 5000;

const COLUMNS = [
  { id: 'name', title: 'Virtual model', grow: 2, least: 120, cell: it => html`<${Name} of=${it.name} />` },
  { id: 'kind', title: 'Rule', width: '84px', cell: it => html`<span class="soft">${it.kind}</span>` },
  { id: 'members', title: 'Members', grow: 3, least: 160, cell: it => html`<span class="figure" title=${it.members.map(member => `${member.model}: ${member.state ?? 'not served'}`).join('\n')}>${it.members.map(member => member.weight === undefined ? member.model : `${member.model} × ${member.weight}`).join(', ')}</span>` },
  { id: 'next', title: 'Next request', grow: 2, least: 120, hide: 620, cell: it => it.next ? html`<span title=${it.next.reason}><${Name} of=${it.next.member} /></span>` : html`<${State} of="broken" more="no member" />` },
  { id: 'source', title: 'Set by', width: '104px', hide: 900, cell: it => html`<span class="soft" title=${it.warnings.join('\n') || undefined}>${it.source}${it.warnings.length > 0 && html` <span class="warn">!</span>`}</span>` },
];

export function VirtualModels() {
  const [models, setModels] = useState([]);
  useEffect(() => {
    let over = false, timer = 0;
    const read = async () => {
      if (!document.hidden) {
        // The list of models shows a lost connection.
        try { const list = await get('/admin/virtual_models'); if (!over) setModels(list.virtual_models); } catch { /* As above. */ }
      }
      if (!over) timer = setTimeout(read, READ_MS);
    };
    read();
    return () => { over = true; clearTimeout(timer); };
  }, []);
  return models.length > 0 && html`<h2 class="table-title">Virtual models</h2><${Table} label="Virtual models" columns=${COLUMNS} rows=${models} id=${it => it.name} onOpen=${it => it.next && openModel(it.next.member)} />`;
}
