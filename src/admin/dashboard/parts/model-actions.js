// Actions on one or several models. Actions that may load, evict or cut show their effect and need confirmation.
import { html, useEffect, useRef, useState } from '../lib/view.js';
import { bytes, clean, count, short, span } from '../lib/text.js';
import { byName, live } from '../lib/live.js';
import { getText, mayChange, READ_ONLY } from '../lib/api.js';
import { change, counted, load, plan as ask, signOf, unload, withEffects } from '../lib/orders.js';
import { sum } from '../lib/device.js';
import { go } from '../lib/route.js';
import { togglePin, settings } from '../lib/settings.js';
import { Confirm, Field, openDialog } from './dialog.js';
import { Button, Choice, Name, copyText } from './bits.js';
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

/** Downloads the model's file with the current settings. */
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
/** `to`: the initial number; null for the catalogue's. */
export const openPriority = (models, to) => openDialog(PriorityDialog, { models, to });
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
  return html`<${Confirm} title=${models.length === 1 ? `Unload ${short(models[0], 40)}` : `Unload ${count(models.length, 'model')}`} close=${close} danger action=${withEffects(`Unload ${count(list.length, 'replica')}`, [now && flight && `cut ${count(flight, 'request')}`])} disabled=${list.length === 0} act=${act}>
    <${Gone} names=${gone} />${list.length === 0 && html`<p>None of these is loaded any more.</p>`}
    <ul class="plain lines">${list.map(({ model, it }) => html`<li key=${it.replica}><span class="grow"><${Name} of=${model.model} most=${50} /> <span class="soft figure">${it.replica}</span></span>
      ${it.in_flight > 0 && html`<span class="warn figure">${it.in_flight} in flight</span>`}${model.waiting > 0 && html`<span class="warn figure">${model.waiting} waiting</span>`}<span class="figure">${bytes(sum(it.devices, share => share.bytes))}</span><span class="soft figure">back in ${span(model.load_ms_expected)}</span></li>`)}</ul>
    <p>${bytes(freed)} become free. ${flight ? now ? `${count(flight, 'request')} in flight will be cut.` : `${count(flight, 'request')} in flight may finish first.` : 'No request is in flight.'}
      ${there.some(it => it.waiting > 0) ? ' Requests that wait for these models load them again.' : ''}</p>
    ${flight > 0 && html`<label class="check"><input type="checkbox" checked=${now} onChange=${event => setNow(event.currentTarget.checked)} /><span>Do not wait: cut the requests in flight</span></label>`}<//>`;
}

/** Largest number of models per preview. */
const PREVIEWED = 64;

function PriorityDialog({ models, to, close }) {
  live.use(it => it.models);
  const there = models.map(it => byName.get(it)).filter(Boolean), gone = models.filter(it => !byName.has(it)), over = there.filter(it => it.priority_from === 'override');
  const [value, setValue] = useState(String(to ?? there[0]?.priority ?? 0)), [isReset, setReset] = useState(to === null), [preview, setPreview] = useState(null), review = useRef(null);
  const number = Number(value), isRight = isReset || value.trim() !== '' && Number.isInteger(number) && number >= 0 && number <= 1_000_000, next = isReset ? null : number;
  const changed = isReset ? over : there.filter(it => it.priority !== number || it.priority_from !== 'override'), isTooMany = changed.length > PREVIEWED;
  const set = async () => {
    if (!await review.current()) return false;
    for (const model of changed) {
      const { model: name, priority, priority_from: from } = model;
      const words = isReset ? `${short(name, 50)}: the catalogue’s priority` : `${short(name, 50)}: priority ${number}`;
      if (!await change(name, { priority: next }, words, () => openPriority([name], from === 'override' ? priority : null))) throw new Error('Not all were changed; see the message.');
    }
    return true;
  };
  const order = isReset ? 'Restore the catalogue’s priority' : `Set priority ${isRight ? number : '…'}`;
  const action = preview ? withEffects(order, [counted('load', preview.loads), counted('evict', preview.leaving)]) : order;
  return html`<${Confirm} wide title=${models.length === 1 ? `Priority of ${short(models[0], 40)}` : `Priority of ${count(models.length, 'model')}`} close=${close} danger=${preview?.leaving.length > 0} action=${action} disabled=${!isRight || !changed.length || isTooMany || !preview} act=${set}>
    <${Gone} names=${gone} />
    <div class="fields"><${Field} label="Priority" id="priority" error=${isRight ? null : 'A whole number from 0 to 1,000,000.'}><input id="priority" type="number" min="0" max="1000000" step="1" value=${isReset ? '' : value} disabled=${isReset} data-first onInput=${event => setValue(event.currentTarget.value)} /><//>
      ${over.length > 0 && html`<div class="field"><label class="check"><input type="checkbox" checked=${isReset} onChange=${event => setReset(event.currentTarget.checked)} /><span>As in the catalogue: clear the override</span></label></div>`}</div>
    <p class="help">0 is the lowest. From 2 on a model is always hot: it is loaded now and each morning, and demand never evicts it (P4). A higher priority may evict a lower one (P2).</p>
    <ul class="plain lines">${there.slice(0, 30).map(it => html`<li key=${it.model}><span class="grow"><${Name} of=${it.model} most=${50} /></span><span class="figure">${it.priority} → ${isReset ? 'catalogue' : isRight ? number : '?'}</span><span class="soft">now from ${it.priority_from}</span></li>`)}</ul>
    ${there.length > 30 && html`<p class="soft">and ${there.length - 30} more</p>`}
    ${isTooMany ? html`<p class="notice">The preview covers at most ${PREVIEWED} models. Choose fewer.</p>` : isRight && changed.length > 0 && html`<${WhatIf} assumed=${{ priorities: Object.fromEntries(changed.map(it => [it.model, next])) }} onPreview=${setPreview} review=${review} />`}
    ${isRight && !changed.length && html`<p class="soft">Nothing would change.</p>`}<//>`;
}

const LENGTH = /^([1-9]\d{0,2}(s|m|h)|([1-9]\d?|[12]\d{2})d)( [1-9]\d?(s|m|h)){0,2}$/;

function LeaseDialog({ model, close }) {
  live.use(it => it.models);
  const now = byName.get(model), over = now?.override, [mode, setMode] = useState('set'), [lease, setLease] = useState('2h'), [priority, setPriority] = useState(''), [keep, setKeep] = useState('');
  const [preview, setPreview] = useState(null), review = useRef(null), ends = mode === 'clear' && Boolean(over);
  const isRight = ends || LENGTH.test(lease.trim()) && (!keep.trim() || LENGTH.test(keep.trim())), lacks = !ends && !over && priority === '' && !keep.trim();
  const patch = ends ? { priority: null, keep_hot: null, lease: null } : { lease: lease.trim(), ...(priority !== '' && { priority: Number(priority) }), ...(keep.trim() && { keep_hot: keep.trim() }) };
  const assumed = now && 'priority' in patch ? { priorities: { [model]: patch.priority } } : null, shown = assumed ? preview : { loads: [], leaving: [] };
  const act = async () => {
    if (assumed && !await review.current()) return false;
    if (!await change(model, patch, ends ? `${short(model, 50)}: as in the catalogue` : `${short(model, 50)}: leased for ${lease.trim()}`)) throw new Error('It was not changed; see the message.');
    return true;
  };
  const order = ends ? 'Clear the override' : `Lease for ${isRight ? lease.trim() : '…'}`;
  return html`<${Confirm} wide title=${`Lease of ${short(model, 40)}`} close=${close} danger=${shown?.leaving.length > 0} action=${shown ? withEffects(order, [counted('load', shown.loads), counted('evict', shown.leaving)]) : order} disabled=${!isRight || !now || lacks || !shown} act=${act}>
    ${!now && html`<${Gone} names=${[model]} />`}
    ${over && html`<p><${Choice} label="Change" value=${mode} of=${[['set', 'Set or extend'], ['clear', 'Clear']]} onChange=${setMode} /></p>`}
    ${ends ? html`<p class="soft">Priority and keep-hot time are the catalogue’s again, and no lease protects the model.</p>` : html`<p class="soft">A lease is an override with an end: until then the model has this priority and this keep-hot time, and stays loaded. Then the catalogue’s values apply again.</p>
    <div class="fields"><${Field} label="Duration" id="lease-for" help="From now, such as 2h or 1d." error=${LENGTH.test(lease.trim()) ? null : 'A duration such as 30m, 2h or 1d.'}><input id="lease-for" value=${lease} data-first onInput=${event => setLease(event.currentTarget.value)} /><//>
      <${Field} label="Priority" id="lease-priority" help=${lacks ? 'A lease needs a priority or a keep-hot time.' : 'Empty: unchanged.'}><input id="lease-priority" type="number" min="0" max="1000000" placeholder=${String(now?.priority ?? '')} value=${priority} onInput=${event => setPriority(event.currentTarget.value)} /><//>
      <${Field} label="Keep hot" id="lease-keep" help="An idle replica is unloaded after this time." error=${!keep.trim() || LENGTH.test(keep.trim()) ? null : 'A duration such as 30m.'}><input id="lease-keep" placeholder=${now?.keep_hot_ms ? span(now.keep_hot_ms) : ''} value=${keep} onInput=${event => setKeep(event.currentTarget.value)} /><//></div>`}
    ${assumed && isRight && html`<${WhatIf} assumed=${assumed} onPreview=${setPreview} review=${review} />`}<//>`;
}

/** Plans of several models, each for the current pool, with one confirmation. */
function BulkLoadDialog({ models, close }) {
  const [plans, setPlans] = useState(new Map()), [isOutdated, setOutdated] = useState(false);
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
  const victims = [...new Map(feasible.flatMap(it => plans.get(it).victims).map(one => [one.replica, one])).values()];
  const act = async () => {
    const now = new Map();
    for (const model of feasible) now.set(model, await ask({ model }));
    const isSame = feasible.every(it => signOf(now.get(it)) === signOf(plans.get(it)));
    setPlans(before => new Map([...before, ...now]));
    setOutdated(!isSame);
    if (isSame) for (const model of feasible) load({ model }, null);
    return isSame;
  };
  return html`<${Confirm} wide title=${`Load ${count(models.length, 'model')}`} close=${close} danger=${victims.length > 0} disabled=${!isWhole || feasible.length === 0} action=${withEffects(`Load ${feasible.length === 1 ? short(feasible[0], 30) : count(feasible.length, 'model')}`, [counted('evict', victims)])} act=${act}>
    <p class="soft">Each plan is for the pool as it is now. The loads are decided one after another, and a later one may find less room than its plan shows.</p>
    ${isOutdated && html`<p class="notice" role="alert">The pool has changed since these plans, so nothing was ordered. These are the plans now; confirm them again.</p>`}
    <ul class="plain lines">${models.map(model => {
      const plan = plans.get(model);
      return html`<li key=${model}><span class="grow"><${Name} of=${model} most=${50} /><br /><span class=${plan && !plan.feasible ? 'bad-words' : 'soft'}>${!plan ? 'planning…' : plan instanceof Error ? clean(plan.message) : clean(plan.reason)}${
        plan?.victims?.length ? `: evicts ${plan.victims.map(it => short(it.model, 30)).join(', ')}` : ''}</span></span>${plan?.placement?.length > 0 && html`<span class="figure">${plan.placement.map(it => it.device).join(' + ')}</span>`}</li>`;
    })}</ul><//>`;
}
