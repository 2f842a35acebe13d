// Machines of the pool, open requests to the cluster, and the sizes that it can bring with their costs.
import { html, useCallback, useEffect, useState } from '../lib/view.js';
import { get } from '../lib/api.js';
import { bytes, clean, count, short } from '../lib/text.js';
import { Ago, Button, Clock, Empty, Fact, Head, Loading, ModelLink, Problem } from '../parts/bits.js';
import { Table } from '../parts/table.js';

const READ_EVERY = 5000;
const STATES = { joined: ['good', 'Joined'], silent: ['bad', 'Silent'], draining: ['going', 'Draining'], released: ['going', 'Given back'], ending: ['going', 'Ending'], ends_others: ['busy', 'Ends engines'] };
const OUTLOOKS = { unknown: ['busy', 'Sent'], waits: ['none', 'Waits'], stuck: ['bad', 'Stuck'], never: ['bad', 'Cannot start'], starts: ['busy', 'Starts'], joined: ['good', 'Joined'] };
const money = it => it === null ? '—' : it.toFixed(2);
const hours = it => it.toLocaleString('en', { maximumFractionDigits: 2 });

export const Sign = ({ of: [tone, word] }) => html`<span class="state" data-tone=${tone}><span class="state-sign" aria-hidden="true"></span><span>${word}</span></span>`;
const stateOf = it => STATES[it.state] ?? ['none', it.state];

const NODES = [
  { id: 'node', title: 'Node', grow: 1, least: 110, cell: it => html`<span class="stack"><b class="clip" title=${clean(it.node)}>${it.is_controller ? 'Controller' : short(it.node, 40)}</b><span class="soft small clip">${it.is_controller ? 'node 0' : it.shape ? `size ${clean(it.shape)}` : clean(it.address ?? '')}</span></span>` },
  { id: 'state', title: 'State', grow: 2, least: 120, cell: (it, width) => html`<span class="stack"><${Sign} of=${stateOf(it)} />${it.reason ? html`<span class="soft small clip" title=${clean(it.reason)}>${short(it.reason, 160)}</span>` : width < 560 && html`<span class="soft small clip">${count(it.devices.length, 'device')}, ${count(it.replicas.length, 'replica')}</span>`}</span>` },
  { id: 'devices', title: 'Devices', right: true, width: '76px', hide: 560, cell: it => html`<span class="figure" title=${it.devices.map(clean).join(', ')}>${it.devices.length}</span>` },
  { id: 'replicas', title: 'Replicas', right: true, width: '80px', hide: 560, cell: it => html`<span class="figure" title=${it.replicas.join(', ')}>${it.replicas.length}</span>` },
  { id: 'since', title: 'Since', width: '100px', hide: 860, cell: it => html`<${Ago} at=${it.since} none="the start" />` },
  { id: 'ends', title: 'Lease ends', width: '132px', hide: 700, cell: it => it.ends_at ? html`<${Clock} at=${it.ends_at} />` : html`<span class="faint">—</span>` },
  { id: 'cost', title: 'Cost/h', right: true, width: '70px', hide: 700, cell: it => html`<span class="figure">${money(it.cost_per_hour)}</span>` },
];

const SIZES = [
  { id: 'shape', title: 'Size', grow: 1, least: 100, cell: (it, width) => html`<span class="stack"><b class="clip">${short(it.shape, 40)}</b><span class="soft small clip">${width < 560 ? `${it.gpus} ×` : `${count(it.gpus, 'GPU')} of`} ${bytes(it.bytes_per_gpu)}</span></span>` },
  { id: 'held', title: 'Nodes', right: true, width: '76px', cell: it => html`<span class="figure">${it.held}${it.max_nodes !== null && html`<span class="soft"> of ${it.max_nodes}</span>`}</span>` },
  { id: 'cost', title: 'Cost/h', right: true, width: '70px', hide: 700, cell: it => html`<span class="figure">${money(it.cost_per_hour)}</span>` },
  { id: 'why', title: 'Requested', grow: 3, least: 120, cell: (it, width) => it.unavailable ? html`<span class="stack"><${Sign} of=${['bad', 'Not now']} />${it.retry_at && html`<span class="soft small clip">until <${Clock} at=${it.retry_at} /></span>`}</span>` : html`<span class="stack"><${Sign} of=${['good', 'When needed']} />${width < 700 && it.cost_per_hour !== null && html`<span class="soft small clip">${money(it.cost_per_hour)} per hour</span>`}</span>` },
];

// Requests made together are one entry; others are one each.
function together(requests) {
  const sets = new Map();
  for (const it of requests) {
    const key = it.set ?? it.shape;
    sets.set(key, [...(sets.get(key) ?? []), it]);
  }
  return [...sets.entries()];
}

function Request({ of: all }) {
  const [first] = all, isSet = all.length > 1;
  // The requests of one lease wait for the same reason.
  const reasons = [...new Map(all.map(it => [[it.outlook, it.reason, it.starts_at].join(), it])).values()];
  const cost = first.cost_per_hour !== null && html`<span class="figure soft">${money(first.cost_per_hour)} per hour${isSet && ' each'}</span>`;
  const sign = it => html`<${Sign} of=${OUTLOOKS[it.outlook] ?? ['none', it.outlook]} />`;
  const reason = it => html`<span class="soft node-reason">${isSet && html`${sign(it)}: `}${clean(it.reason) || 'the cluster has not reported on it'}${it.starts_at && html`; expected to start at <${Clock} at=${it.starts_at} />`}</span>`;
  return html`<li><span class="node-what"><b>${isSet && `${all.length} × `}${short(first.shape, 40)}</b> <span class="soft">for</span> <${ModelLink} of=${first.model} most=${50} /></span>${isSet ? html`<span class="soft">all or none</span>` : sign(first)}<span class="soft"><${Ago} at=${first.since} /></span>${cost}
    ${reasons.map(reason)}</li>`;
}

const PERIODS = { day: 'Today', month: 'This month', batch_day: 'Today for batches' };

function Use({ of: it }) {
  const most = (used, limit) => limit === null ? used : `${used} of ${limit}`;
  return html`<${Fact} label=${PERIODS[it.period] ?? it.period}><b class="figure">${most(hours(it.gpu_hours), it.gpu_hours_max === null ? null : hours(it.gpu_hours_max))}</b> GPU hours, cost <b class="figure">${most(money(it.cost), it.cost_max === null ? null : money(it.cost_max))}</b><//>`;
}

export function Nodes() {
  const [list, setList] = useState(null), [failure, setFailure] = useState(null);
  const read = useCallback(() => get('/admin/nodes').then(it => { setList(it); setFailure(null); }, setFailure), []);
  useEffect(() => {
    read();
    const timer = setInterval(() => { if (!document.hidden) read(); }, READ_EVERY);
    return () => clearInterval(timer);
  }, []);
  if (!list) return html`<${Head} title="Nodes" />${failure ? html`<${Problem} failure=${failure} again=${read} />` : html`<${Loading} />`}`;
  const about = [count(list.nodes.length, 'machine'), list.requested.length > 0 && count(list.requested.length, 'open request')].filter(Boolean).join(', ');
  return html`<${Head} title="Nodes" about=${about}><${Button} onClick=${read}>Read again<//><//>
    ${failure && html`<${Problem} failure=${failure} again=${read} />`}
    ${list.requested.length > 0 && html`<section class="lines-card" aria-label="Open requests"><h2>Open requests</h2><ul class="plain lines">${together(list.requested).map(([key, all]) => html`<${Request} key=${key} of=${all} />`)}</ul></section>`}
    <${Table} label="Nodes" columns=${NODES} rows=${list.nodes} id=${it => it.node} rowHeight=${52} empty=${html`<${Empty} icon="nodes" title="No nodes" />`} />
    ${list.shapes.length > 0 && html`<h2 class="node-title">Sizes of the cluster</h2><${Table} label="Sizes" columns=${SIZES} rows=${list.shapes} id=${it => it.shape} rowHeight=${52} />
      ${list.shapes.filter(it => it.unavailable).map(it => html`<p key=${it.shape} class="soft small node-title">No node of size ${short(it.shape, 40)}: ${clean(it.unavailable)}</p>`)}`}
    ${list.spent.length > 0 && html`<h2 class="node-title">Use of requested nodes</h2><dl class="facts">${list.spent.map(it => html`<${Use} key=${it.period} of=${it} />`)}</dl>`}`;
}
