// Previews a load with its evictions and placement, then orders it. If the pool has changed since,
// the new plan is shown and needs another confirmation.
import { html, useEffect, useMemo, useRef, useState } from '../lib/view.js';
import { bytes, clean, count, length, short, sourceOf, span } from '../lib/text.js';
import { after } from '../lib/device.js';
import { byName, live } from '../lib/live.js';
import { mayChange, READ_ONLY } from '../lib/api.js';
import { counted, load, plan as ask, signOf, withEffects } from '../lib/orders.js';
import { Bar } from './bar.js';
import { Button, Name, ofModel } from './bits.js';
import { Dialog, FailureLine, Field, openDialog } from './dialog.js';
import { Icon } from './icons.js';

export const openPlan = (model, order = {}) => openDialog(PlanDialog, { model, first: order });

const WAIT_MS = 250;

function orderOf(model, fields) {
  const order = { model };
  for (const name of ['priority', 'replicas', 'gpus']) if (fields[name] !== '') order[name] = Number(fields[name]);
  for (const name of ['keep_hot', 'lease']) if (fields[name].trim()) order[name] = fields[name].trim();
  if (fields.force) order.force = true;
  return order;
}

export function PlanDialog({ model, first, close }) {
  const [fields, setFields] = useState({ priority: '', replicas: '', gpus: '', keep_hot: '', lease: '', force: false, ...first });
  const [plan, setPlan] = useState(null), [failure, setFailure] = useState(null), [asking, setAsking] = useState(true), [isOutdated, setOutdated] = useState(false), [busy, setBusy] = useState(false);
  const [isOpen, setOpen] = useState(Object.keys(first).length > 0);
  const devices = live.use(it => it.devices), isThere = live.use(it => it.models) && byName.has(model);
  const order = useMemo(() => orderOf(model, fields), [model, fields]);
  const picture = useRef([]);
  useEffect(() => {
    const abort = new AbortController();
    setAsking(true);
    setOutdated(false);
    const timer = setTimeout(async () => {
      try {
        const found = await ask(order, abort.signal);
        picture.current = live.get().devices;
        setPlan(found);
        setFailure(null);
      } catch (error) {
        if (!abort.signal.aborted) { setPlan(null); setFailure(error); }
      }
      if (!abort.signal.aborted) setAsking(false);
    }, plan ? WAIT_MS : 0);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [order]);
  const confirm = async () => {
    setBusy(true);
    try {
      const now = await ask(order);
      if (signOf(now) !== signOf(plan)) {
        picture.current = live.get().devices;
        setPlan(now);
        setOutdated(true);
        setBusy(false);
        return;
      }
      load(order, now);
      close();
    } catch (error) {
      setFailure(error);
      setBusy(false);
    }
  };
  const set = (name, value) => setFields(before => ({ ...before, [name]: value }));
  const input = (name, label, more) => html`<${Field} label=${label} id=${`plan-${name}`} help=${more.help}><input id=${`plan-${name}`} value=${fields[name]} onInput=${event => set(name, event.currentTarget.value)} autocomplete="off" ...${more} /><//>`;
  const may = mayChange(), victims = plan?.victims ?? [];
  const action = !plan ? 'Load' : plan.already_loaded ? 'Load again' : plan.loading ? 'Wait for the load' : victims.length ? withEffects('Load', [counted('evict', victims)]) : plan.wakes ? 'Wake' : 'Load';
  return html`<${Dialog} wide title="Plan a load" label=${`Plan a load of ${short(model, 60)}`} close=${close} foot=${html`<span class="soft foot-note">${may ? '' : READ_ONLY}</span><${Button} onClick=${close}>Cancel<//>
      <${Button} kind=${victims.length ? 'danger' : 'main'} busy=${busy} disabled=${!may || !plan?.feasible || asking || !isThere} onClick=${confirm}>${action}<//>`}>
    <p class="plan-model"><${Name} of=${model} /></p>
    ${!isThere && html`<p class="notice" role="alert"><${Icon} name="alert" />This model is not in the catalogue any more. It was removed while this dialog was open.</p>`}
    ${isOutdated && html`<p class="notice" role="alert"><${Icon} name="alert" />The pool has changed since this plan was made, so nothing was ordered. This is the plan as it is now; confirm it again.</p>`}
    <details class="plan-more" open=${isOpen} onToggle=${event => setOpen(event.currentTarget.open)}><summary>Priority, replicas, keep-hot, lease</summary><div class="fields">
      ${input('priority', 'Priority', { type: 'number', min: 0, max: 1000000, placeholder: String(byName.get(model)?.priority ?? 0), help: 'Stays as an override, or until the lease ends.' })}
      ${input('replicas', 'Replicas', { type: 'number', min: 1, max: 64, placeholder: 'unchanged, at least 1' })}
      ${input('gpus', 'Devices of each', { type: 'number', min: 1, max: 1024, placeholder: 'from the catalogue' })}
      ${input('keep_hot', 'Keep hot', { placeholder: length(byName.get(model)?.keep_hot_ms ?? 600_000), help: 'Such as 30m or 2h.' })}
      ${input('lease', 'Lease', { placeholder: 'none', help: 'Time until all of this ends, such as 2h; the model stays loaded until then.' })}
      <div class="field"><label class="check"><input type="checkbox" checked=${fields.force} onChange=${event => set('force', event.currentTarget.checked)} /><span>Force: may evict equal and always-hot models (P4)</span></label></div></div></details>
    ${failure && html`<${FailureLine} failure=${failure} />`}
    <div aria-live="polite" aria-busy=${String(asking)} class=${asking && plan ? 'plan-answer stale' : 'plan-answer'}>
      ${!plan && asking && html`<p class="soft">Planning…</p>`}
      ${plan && html`<${PlanAnswer} plan=${plan} devices=${picture.current.length ? picture.current : devices} />`}</div><//>`;
}

export function PlanAnswer({ plan, devices }) {
  const changes = useMemo(() => after(plan, devices), [plan, devices]);
  const facts = [`${count(plan.needs.devices, 'device')} with ${bytes(plan.needs.bytes_per_device)} each (${sourceOf(plan.needs)})`, `priority ${plan.priority}`,
    plan.expected_seconds !== null && !plan.already_loaded && `about ${span(plan.expected_seconds * 1000)} to the first response`, plan.cost.evicted_bytes > 0 && `${bytes(plan.cost.evicted_bytes)} evicted, ${span(plan.cost.expected_reload_ms)} to bring it back`];
  // A refusal lists the obstacles on each device, as do the candidates below.
  const reason = clean(plan.reason), verdict = plan.feasible || !plan.candidates.length ? reason : reason.split('; ')[0];
  return html`<p class="plan-verdict" data-tone=${!plan.feasible ? 'bad' : plan.victims.length ? 'going' : 'good'}><${Icon} name=${plan.feasible && !plan.victims.length ? 'check' : 'alert'} /><span>${verdict}</span></p>
    <p class="soft">${facts.filter(Boolean).join(' · ')}</p>
    ${plan.feasible && !plan.already_loaded && !plan.loading && changes.length > 0 && html`<div class="before-after">${changes.slice(0, 8).map(({ device, next, victims }) => html`<div class="change" key=${device.device}>
      <p class="change-name">${device.device}<span class="soft figure">${bytes(device.total_bytes)}</span></p>
      <div class="change-line"><span class="change-word">now</span><${Bar} device=${device} still gone=${victims} height=${34} /></div>
      <div class="change-line"><span class="change-word">then</span><${Bar} device=${next} still height=${34} /></div></div>`)}
      ${changes.length > 8 && html`<p class="soft">and ${changes.length - 8} more devices</p>`}</div>`}
    ${plan.victims.length > 0 && html`<h3>Leaves</h3><ul class="plain lines">${plan.victims.map(it => html`<li key=${it.replica}><span class="swatch" style=${ofModel(it.model)}></span><span class="grow"><b>${short(it.model, 60)}</b> <span class="soft figure">${it.replica}</span><br />
      <span class="soft">${clean(it.reason)}${it.busy ? '; it has requests in flight' : ''}</span></span><span class="figure">${bytes(it.bytes)}</span><span class="soft figure">back in ${span(it.reload_ms)}</span></li>`)}</ul>`}
    ${plan.waits_for.length > 0 && html`<h3>Waits for</h3><ul class="plain lines">${plan.waits_for.map(it => html`<li key=${it}>${clean(it)}</li>`)}</ul>`}
    ${plan.candidates.length > 0 && html`<details class="plan-more" open=${!plan.feasible}><summary>${count(plan.candidates.length, 'candidate placement')}</summary><ol class="plain lines">${plan.candidates.map(it => html`<li key=${it.place + it.verdict}><b class="figure">${clean(it.place)}</b><span class="grow soft">${clean(it.verdict)}</span></li>`)}</ol></details>`}`;
}
