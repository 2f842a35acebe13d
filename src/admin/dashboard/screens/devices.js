// Devices with their figures and memory owners, and taking them out of service.
import { html, useRef, useState } from '../lib/view.js';
import { post, READ_ONLY, useMayChange } from '../lib/api.js';
import { bytes, clean, count, short } from '../lib/text.js';
import { live } from '../lib/live.js';
import { counted, withEffects } from '../lib/orders.js';
import { PART_WORDS, parts, sum } from '../lib/device.js';
import { replace, route } from '../lib/route.js';
import { Bar } from '../parts/bar.js';
import { Ago, Button, Clock, Empty, Fact, Head, ModelLink, State } from '../parts/bits.js';
import { Confirm, Field, openDialog } from '../parts/dialog.js';
import { tell } from '../parts/messages.js';
import { Table } from '../parts/table.js';
import { WhatIf, WhatIfDialog } from '../parts/what-if.js';

const COLUMNS = [
  { id: 'device', title: 'Device', width: 'minmax(62px, 110px)', cell: it => html`<span class="stack"><b class="figure">${short(it.device, 20)}</b><span class="soft">${it.node}</span></span>` },
  { id: 'bar', title: 'Memory', grow: 3, least: 90, cell: it => html`<span class="cell-bar"><${Bar} device=${it} height=${26} /></span>` },
  { id: 'free', title: 'Free', right: true, width: '86px', cell: it => html`<span class="figure">${bytes(it.free_bytes)}</span>` },
  { id: 'total', title: 'Of', right: true, width: '86px', hide: 700, cell: it => html`<span class="figure soft">${bytes(it.total_bytes)}</span>` },
  { id: 'used', title: 'Measured', right: true, width: '90px', hide: 900, cell: it => html`<span class="figure">${bytes(it.used_bytes)}</span>` },
  { id: 'foreign', title: 'Foreign', right: true, width: '86px', hide: 1000, cell: it => html`<span class=${`figure ${it.foreign_bytes ? 'warn' : 'faint'}`}>${it.foreign_bytes ? bytes(it.foreign_bytes) : '0'}</span>` },
  { id: 'busy', title: 'Busy', right: true, width: '58px', hide: 1150, cell: it => html`<span class="figure">${it.utilisation_percent === null ? '—' : `${it.utilisation_percent} %`}</span>` },
  { id: 'heat', title: 'Temp.', right: true, width: '58px', hide: 1150, cell: it => html`<span class="figure">${it.temperature_celsius === null ? '—' : `${it.temperature_celsius} °C`}</span>` },
  { id: 'state', title: 'State', width: '110px', hide: 620, cell: it => it.stale ? html`<span class="bad-words">unreadable</span>` : it.cordon ? html`<span class="device-trouble" title=${clean(it.cordon.reason)}>${it.cordon.failed ? 'failed' : 'cordoned'}</span>` : html`<span class="soft">in service</span>` },
];

export function Devices() {
  const devices = live.use(it => it.devices), { query } = route.use(), open = devices.find(it => it.device === query.device);
  return html`<${Head} title="Devices" about=${`${count(devices.length, 'device')}, ${bytes(sum(devices, it => it.free_bytes))} free of ${bytes(sum(devices, it => it.total_bytes))}`} />
    ${query.device && (open ? html`<${One} device=${open} key=${open.device} />` : html`<p class="notice">The device ${short(query.device, 40)} no longer exists.</p>`)}
    <${Table} label="Devices" columns=${COLUMNS} rows=${devices} id=${it => it.device} rowHeight=${50} onOpen=${it => replace('devices', { ...query, device: it.device === query.device ? '' : it.device })} opened=${query.device} empty=${html`<${Empty} icon="devices" title="No devices" />`} />`;
}

function One({ device }) {
  const may = useMayChange();
  const act = device.cordon ? html`<${Button} disabled=${!may} title=${may ? undefined : READ_ONLY} onClick=${() => openDialog(Uncordon, { name: device.device })}>Put back into service…<//>`
    : html`<${Button} disabled=${!may} title=${may ? undefined : READ_ONLY} onClick=${() => openDialog(Cordon, { name: device.device })}>Take out of service…<//>`;
  return html`<section class="lines-card" aria-label=${`Device ${device.device}`}><div class="queue-head"><h2 class="figure">${device.device}</h2><span class="soft">${clean(device.name ?? '')}</span><span class="grow"></span>${!device.cordon && html`<${Button} icon="why" onClick=${() => openDialog(WhatIfDialog, { title: `What if ${device.device} were out of service?`, assumed: { cordoned: [device.device] } })}>What if…<//>`}${act}<${Button} icon="close" onClick=${() => replace('devices', {})}>Close<//></div>
    ${device.stale && html`<p class="notice">The device cannot be read; these are the last known figures: ${clean(device.stale)}</p>`}
    ${device.cordon && html`<p class="notice">${device.cordon.failed ? 'The device reported an error' : 'Cordoned'} since <${Clock} at=${device.cordon.since_at} />${device.cordon.until_at ? html`, expected until <${Clock} at=${device.cordon.until_at} />` : ''}: ${clean(device.cordon.reason)}</p>`}
    <${Bar} device=${device} /><div class="columns-2 device-facts"><dl class="facts">${parts(device).filter(it => it.kind !== 'replica').map(it => html`<${Fact} key=${it.kind} label=${PART_WORDS[it.kind][0]}><b class="figure">${bytes(it.bytes)}</b> <span class="soft">${PART_WORDS[it.kind][1]}</span><//>`)}
      <${Fact} label="Reserved"><b class="figure">${bytes(device.reserved_bytes)}</b> <span class="soft">by replicas, used or not</span><//><${Fact} label="Measured"><b class="figure">${bytes(device.used_bytes)}</b> <span class="soft">in use, by any process</span><//>
      <${Fact} label="Read"><${Ago} at=${device.read_at} /><//>${device.uuid && html`<${Fact} label="UUID"><span class="figure wrap">${clean(device.uuid)}</span><//>`}</dl>
    <div><h3 class="first">Memory owners</h3>${device.owners.length === 0 ? html`<p class="soft">No replica.</p>` : html`<ul class="plain lines">${device.owners.map(it => html`<li key=${it.replica}><span class="grow"><${ModelLink} of=${it.model} most=${50} /> <span class="soft figure">${it.replica}</span></span><${State} of=${it.state} /><span class="figure">${bytes(it.bytes)}</span>${it.measured_bytes !== null && html`<span class="soft figure">measured ${bytes(it.measured_bytes)}</span>`}</li>`)}</ul>`}</div></div></section>`;
}

function Cordon({ name, close }) {
  const device = live.use(it => it.devices).find(it => it.device === name);
  const [reason, setReason] = useState(''), [until, setUntil] = useState(''), [now, setNow] = useState(false), [preview, setPreview] = useState(null), review = useRef(null);
  const leaves = device?.owners ?? [], isPreviewed = leaves.length === 0 || preview !== null, flight = sum(preview?.leaving ?? [], it => it.in_flight);
  // Replicas leave other devices to make room for reloaded models.
  const elsewhere = (preview?.leaving ?? []).filter(it => !leaves.some(one => one.replica === it.replica));
  const action = withEffects('Cordon', [leaves.length > 0 && `drain ${count(leaves.length, 'replica')}`, preview && counted('load', preview.loads), counted('evict', elsewhere), now && flight > 0 && `cut ${count(flight, 'request')}`]);
  const act = async () => {
    if (leaves.length > 0 && !await review.current()) return false;
    await post('/admin/devices/cordon', { device: name, ...(reason.trim() && { reason: reason.trim() }), ...(until.trim() && { until: until.trim() }), ...(now && { now }), wait: false });
    tell(`${name} accepts no new replicas`, { more: leaves.length ? `${count(leaves.length, 'replica')} will leave` : null });
    return true;
  };
  return html`<${Confirm} title=${`Take ${name} out of service`} close=${close} wide danger=${leaves.length > 0} action=${action} disabled=${!device || !isPreviewed} act=${act}>
    ${!device && html`<p class="notice">This device is gone.</p>`}<p>Nothing new is placed on the device until it is put back (M7). ${leaves.length ? 'Its replicas leave:' : 'It has no replicas.'}</p>
    ${device && leaves.length > 0 && html`<${WhatIf} assumed=${{ cordoned: [name] }} onPreview=${setPreview} review=${review} />`}
    <div class="fields"><${Field} label="Reason" id="cordon-reason" help="Shown to administrators."><input id="cordon-reason" maxlength="500" value=${reason} data-first onInput=${event => setReason(event.currentTarget.value)} placeholder="new fan" /><//>
      <${Field} label="Expected for" id="cordon-until" help="Such as 2h. The device stays out of service until you put it back."><input id="cordon-until" value=${until} onInput=${event => setUntil(event.currentTarget.value)} placeholder="2h" /><//></div>
    ${leaves.length > 0 && html`<label class="check"><input type="checkbox" checked=${now} onChange=${event => setNow(event.currentTarget.checked)} /><span>Do not wait: cut the requests in flight</span></label>`}<//>`;
}

function Uncordon({ name, close }) {
  const act = async () => { await post('/admin/devices/uncordon', { device: name }); tell(`${name} is back in service`); };
  return html`<${Confirm} title=${`Put ${name} back`} close=${close} action="Put back into service" act=${act}><p>The pool may place replicas on ${name} again.</p><//>`;
}
