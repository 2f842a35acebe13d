// What can be done with a model, or with several at once. Whatever costs something says so first and has to be confirmed.
import { html, useEffect, useState } from '../lib/view.js';
import { bytes, clean, count, short, span } from '../lib/text.js';
import { byName, live } from '../lib/live.js';
import { getText, mayChange, READ_ONLY } from '../lib/api.js';
import { change, load, plan as ask, unload } from '../lib/orders.js';
import { sum } from '../lib/device.js';
import { go } from '../lib/route.js';
import { togglePin, settings } from '../lib/settings.js';
import { Confirm, Field, openDialog } from './dialog.js';
import { Button, Name, copyText } from './bits.js';
import { tell } from './messages.js';
import { openPlan } from './plan.js';
import { WhatIf } from './what-if.js';

const held = model => model.replicas.filter(it => it.state !== 'planned');

/** The actions of one model, for a menu or the command palette. */
export function actionsOf(model) {
  const name = model.model, denied = { disabled: !mayChange(), why: READ_ONLY };
  const isLoaded = model.replicas.length > 0, isPinned = settings.get().pins.includes(name);
  return [
    ['Load or plan…', () => openPlan(name), { icon: 'up' }],
    ['Unload…', () => openUnload([name]), { icon: 'eject', ...denied, ...(!isLoaded && { disabled: true, why: 'It has no replica.' }) }],
    ['Set priority…', () => openPriority([name]), { icon: 'bars', ...denied }],
    ['Lease…', () => openLease(name), { icon: 'evening', ...denied }],
    null,
    ['Log', () => go('logs', { model: name }), { icon: 'logs' }],
    ['Events', () => go('events', { of: name }), { icon: 'events' }],
    ['Playground', () => go('playground', { models: name }), { icon: 'playground' }],
    [isPinned ? 'Unpin' : 'Pin to the top', () => togglePin(name), { icon: 'pin' }],
    ['Clone as file', () => save(name), { icon: 'download', ...denied }],
    ['Copy the name', async () => { if (await copyText(name)) tell('The name is copied'); }, { icon: 'copy' }],
  ];
}

/** The model's file with the settings in force, kept in the browser's downloads. */
async function save(name) {
  try {
    const text = await getText('/admin/models/file', { model: name }), link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([text], { type: 'application/yaml' }));
    link.download = `${name.split('/').pop().replace(/[^\w.-]+/g, '-').slice(0, 100)}.yaml`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    tell(`${link.download} is saved`, { more: 'Change its model_id and put it into the folder of models.' });
  } catch (failure) { tell(`${short(name, 50)} was not saved`, { tone: 'bad', more: failure.message }); }
}

export const openUnload = (models, replica) => openDialog(UnloadDialog, { models, replica });
export const openPriority = models => openDialog(PriorityDialog, { models });
export const openLease = model => openDialog(LeaseDialog, { model });
export const openBulkLoad = models => openDialog(BulkLoadDialog, { models });

const Gone = ({ names }) => names.length ? html`<p class="notice" role="alert">${count(names.length, 'model')} left the catalogue while this dialog was open: ${names.map(it => short(it, 40)).join(', ')}.</p>` : null;

function UnloadDialog({ models, replica, close }) {
  live.use(it => it.models);
  const [now, setNow] = useState(false);
  const there = models.map(it => byName.get(it)).filter(Boolean), gone = models.filter(it => !byName.has(it));
  const list = there.flatMap(model => held(model).filter(it => !replica || it.replica === replica).map(it => ({ model, it })));
  const flight = sum(list, ({ it }) => it.in_flight), freed = sum(list, ({ it }) => sum(it.devices, share => share.bytes));
  const act = async () => { for (const name of new Set(list.map(({ model }) => model.model))) unload(name, { replica, now }); };
  return html`<${Confirm} title=${models.length === 1 ? `Unload ${short(models[0], 40)}` : `Unload ${count(models.length, 'model')}`} close=${close} danger action=${`Unload ${count(list.length, 'replica')}`} disabled=${list.length === 0} act=${act}>
    <${Gone} names=${gone} />${list.length === 0 && html`<p>Nothing of this is loaded any more.</p>`}
    <ul class="plain lines">${list.map(({ model, it }) => html`<li key=${it.replica}><span class="grow"><${Name} of=${model.model} most=${50} /> <span class="soft figure">${it.replica}</span></span>
      ${it.in_flight > 0 && html`<span class="warn figure">${it.in_flight} in flight</span>`}${model.waiting > 0 && html`<span class="warn figure">${model.waiting} waiting</span>`}<span class="figure">${bytes(sum(it.devices, share => share.bytes))}</span><span class="soft figure">back in ${span(model.load_ms_expected)}</span></li>`)}</ul>
    <p>${bytes(freed)} become free. ${flight ? now ? `${count(flight, 'request')} in flight will be cut.` : `${count(flight, 'request')} in flight may finish first.` : 'No request is in flight.'}
      ${there.some(it => it.waiting > 0) ? ' Whoever waits for these models causes a new load.' : ''}</p>
    ${flight > 0 && html`<label class="check"><input type="checkbox" checked=${now} onChange=${event => setNow(event.currentTarget.checked)} /><span>Do not wait: cut the requests in flight</span></label>`}<//>`;
}

function PriorityDialog({ models, close }) {
  live.use(it => it.models);
  const there = models.map(it => byName.get(it)).filter(Boolean), gone = models.filter(it => !byName.has(it));
  const [value, setValue] = useState(String(there[0]?.priority ?? 0));
  const number = Number(value), isRight = value.trim() !== '' && Number.isInteger(number) && number >= 0 && number <= 1_000_000;
  const set = async to => {
    for (const model of there) {
      const done = await change(model.model, { priority: to }, to === null ? `${short(model.model, 50)}: priority as the catalogue says` : `${short(model.model, 50)}: priority ${to}`);
      if (!done) throw new Error('Not all were changed; see the message.');
    }
  };
  const over = there.filter(it => it.priority_from === 'override');
  return html`<${Confirm} title=${models.length === 1 ? `Priority of ${short(models[0], 40)}` : `Priority of ${count(models.length, 'model')}`} close=${close} action="Set" disabled=${!isRight || !there.length} act=${() => set(number)}>
    <${Gone} names=${gone} />
    <${Field} label="Priority" id="priority" help="0 is the lowest; 2 and more are always hot: loaded in the morning and never evicted by demand (P4). A higher one may evict a lower one (P2)."
      error=${isRight ? null : 'A whole number from 0 to 1,000,000.'}><input id="priority" type="number" min="0" max="1000000" step="1" value=${value} data-first onInput=${event => setValue(event.currentTarget.value)} /><//>
    <ul class="plain lines">${there.slice(0, 30).map(it => html`<li key=${it.model}><span class="grow"><${Name} of=${it.model} most=${50} /></span><span class="figure">${it.priority} → ${isRight ? number : '?'}</span><span class="soft">now from ${it.priority_from}</span></li>`)}</ul>
    ${there.length > 30 && html`<p class="soft">and ${there.length - 30} more</p>`}
    ${isRight && there.length > 0 && there.length <= 64 && there.some(it => it.priority !== number) && html`<${WhatIf} assumed=${{ priorities: Object.fromEntries(there.map(it => [it.model, number])) }} />`}
    ${over.length > 0 && html`<p><${Button} onClick=${async () => { await set(null).catch(() => {}); close(); }}>Back to the catalogue’s priority<//></p>`}<//>`;
}

const LENGTH = /^([1-9]\d{0,2}(s|m|h)|([1-9]\d?|[12]\d{2})d)( [1-9]\d?(s|m|h)){0,2}$/;

function LeaseDialog({ model, close }) {
  live.use(it => it.models);
  const now = byName.get(model), [lease, setLease] = useState('2h'), [priority, setPriority] = useState(''), [keep, setKeep] = useState('');
  const isRight = LENGTH.test(lease.trim()) && (!keep.trim() || LENGTH.test(keep.trim()));
  const patch = { lease: lease.trim(), ...(priority !== '' && { priority: Number(priority) }), ...(keep.trim() && { keep_hot: keep.trim() }) };
  const lacks = !now?.override && priority === '' && !keep.trim();
  const act = async () => { if (!await change(model, patch, `${short(model, 50)}: leased for ${lease}`)) throw new Error('It was not changed; see the message.'); };
  return html`<${Confirm} title=${`Lease of ${short(model, 40)}`} close=${close} action="Set the lease" disabled=${!isRight || !now || lacks} act=${act}>
    ${!now && html`<${Gone} names=${[model]} />`}
    <p class="soft">A lease is an override with an end: until then the model has this priority and this keep-hot time, and keep-hot does not unload it. Then the catalogue counts again.</p>
    <div class="fields"><${Field} label="For" id="lease-for" help="From now, like 2h or 1d." error=${LENGTH.test(lease.trim()) ? null : 'A length such as 30m, 2h or 1d.'}><input id="lease-for" value=${lease} data-first onInput=${event => setLease(event.currentTarget.value)} /><//>
      <${Field} label="Priority" id="lease-priority" help=${lacks ? 'A lease needs a priority or a keep-hot time.' : 'Empty: as it is.'}><input id="lease-priority" type="number" min="0" max="1000000" placeholder=${String(now?.priority ?? '')} value=${priority} onInput=${event => setPriority(event.currentTarget.value)} /><//>
      <${Field} label="Keep hot" id="lease-keep" error=${!keep.trim() || LENGTH.test(keep.trim()) ? null : 'A length such as 30m.'}><input id="lease-keep" placeholder=${now ? span(now.keep_hot_ms) : ''} value=${keep} onInput=${event => setKeep(event.currentTarget.value)} /><//></div>
    ${now?.override && html`<p><${Button} onClick=${async () => { if (await change(model, { priority: null, keep_hot: null, lease: null }, `${short(model, 50)}: as the catalogue says`)) close(); }}>Clear every override<//></p>`}<//>`;
}

/** Plans of several models, each for the pool as it is now, before one confirmation. */
function BulkLoadDialog({ models, close }) {
  const [plans, setPlans] = useState(new Map());
  useEffect(() => {
    let over = false;
    (async () => {
      for (const model of models) {
        if (over) return;
        let found;
        try { found = await ask({ model }); } catch (failure) { found = failure; }
        if (!over) setPlans(before => new Map(before).set(model, found));
      }
    })();
    return () => { over = true; };
  }, []);
  const feasible = models.filter(it => plans.get(it)?.feasible && !plans.get(it).already_loaded), isWhole = plans.size === models.length;
  return html`<${Confirm} wide title=${`Load ${count(models.length, 'model')}`} close=${close} danger=${feasible.some(it => plans.get(it).victims.length)} disabled=${!isWhole || feasible.length === 0} action=${`Load ${feasible.length}`}
      act=${async () => { for (const model of feasible) load({ model }, null); }}>
    <p class="soft">Each plan is for the pool as it is now. The loads are decided one after another, so that a later one may find less room than it has here.</p>
    <ul class="plain lines">${models.map(model => {
      const plan = plans.get(model);
      return html`<li key=${model}><span class="grow"><${Name} of=${model} most=${50} /><br /><span class=${plan && !plan.feasible ? 'bad-words' : 'soft'}>${!plan ? 'planning…' : plan instanceof Error ? clean(plan.message) : clean(plan.reason)}${
        plan?.victims?.length ? `: ${plan.victims.map(it => short(it.model, 30)).join(', ')} would leave` : ''}</span></span>${plan?.placement?.length > 0 && html`<span class="figure">${plan.placement.map(it => it.device).join(' + ')}</span>`}</li>`;
    })}</ul><//>`;
}
