// The page of somebody with an ordinary key: which models they have, how they are, and trying one.
import { html, useEffect, useMemo, useState } from '../lib/view.js';
import { BASE, get, session } from '../lib/api.js';
import { count, short } from '../lib/text.js';
import { link } from '../lib/route.js';
import { Button, Clock, Empty, Head, Loading, Name, Problem, Search, State, copyText } from '../parts/bits.js';
import { Table } from '../parts/table.js';
import { tell } from '../parts/messages.js';

const READ_MS = 4000;

/** The models of this key with their states, read again every few seconds while the page is in sight. */
export function useOwnModels() {
  const [models, setModels] = useState(null), [failure, setFailure] = useState(null);
  useEffect(() => {
    let over = false, timer = 0;
    const read = async () => {
      if (!document.hidden) {
        try {
          const it = await get('/hot-models'), rows = [...it.hot_models, ...it.loading_models, ...it.asleep_models ?? []].map(one => ({ model: one.model_name, state: one.status, replicas: one.num_replicas, priority: one.priority }));
          if (!over) { setModels([...rows, ...it.cold_models.map(model => ({ model, state: 'cold', replicas: 0, priority: null }))]); setFailure(null); }
        } catch (error) { if (!over) setFailure(error); }
      }
      if (!over) timer = setTimeout(read, READ_MS);
    };
    read();
    return () => { over = true; clearTimeout(timer); };
  }, []);
  return [models, failure];
}

const COLUMNS = [
  { id: 'model', title: 'Model', grow: 3, least: 140, cell: it => html`<${Name} of=${it.model} />` },
  { id: 'state', title: 'State', width: '150px', cell: it => html`<${State} of=${it.state} />` },
  { id: 'wait', title: 'If you ask now', grow: 2, hide: 700, cell: it => html`<span class="soft">${{ ready: 'answers at once', asleep: 'wakes up, in seconds', cold: 'is loaded first, which can take minutes', loading: 'is being loaded', waiting: 'waits for room', fetching: 'is being downloaded' }[it.state] ?? ''}</span>` },
  { id: 'act', title: 'Try', quiet: true, right: true, width: '64px', cell: it => html`<a class="text-button" href=${link('playground', { models: it.model })}>Try it</a>` },
];

export function Home() {
  const who = session.use(it => it.who), [models, failure] = useOwnModels(), [find, setFind] = useState('');
  const rows = useMemo(() => (models ?? []).filter(it => it.model.toLowerCase().includes(find.toLowerCase())), [models, find]), address = `${BASE}/v1`;
  return html`<${Head} title="Your models" about=${models ? `${count(models.length, 'model')}, ${models.filter(it => it.state === 'ready').length} ready` : undefined}><${Search} label="Find a model" value=${find} onInput=${setFind} /><//>
    ${who?.by !== 'nothing' && html`<p class="soft home-who">Signed in as <b>${short(who?.name ?? '', 60)}</b>${who?.expires_at ? html`, until <${Clock} at=${who.expires_at} />` : ''}.</p>`}
    <p class="home-who">Base URL for OpenAI’s clients: <code>${address}</code> <${Button} icon="copy" onClick=${async () => { if (await copyText(address)) tell('The address is copied'); }}>Copy<//></p>
    ${failure && html`<${Problem} failure=${failure} />`}${!models && !failure && html`<${Loading} />`}
    ${models && html`<${Table} label="Your models" columns=${COLUMNS} rows=${rows} id=${it => it.model} empty=${html`<${Empty} icon="models" title=${models.length ? 'No model is called so' : 'Your key may use no model'}>Ask an administrator.<//>`} />`}`;
}
