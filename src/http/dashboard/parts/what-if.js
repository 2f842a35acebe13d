// What the pool would do if a device were out of service or a priority were another one: decided by the pool on a copy of its state, before anything is ordered.
import { html, useEffect, useState } from '../lib/view.js';
import { post } from '../lib/api.js';
import { bytes, clean, count, short } from '../lib/text.js';
import { Button, ofModel } from './bits.js';
import { Dialog, FailureLine } from './dialog.js';
import { Icon } from './icons.js';

const WAIT_MS = 250;
const SHOWN = 12;

const Places = ({ of: devices }) => html`<span class="figure">${devices.map(it => `${bytes(it.bytes)} on ${it.device}`).join(', ')}</span>`;

function Replicas({ title, of: list, tone }) {
  if (!list.length) return null;
  return html`<h3>${title}</h3><ul class="plain lines">${list.slice(0, SHOWN).map((it, nth) => html`<li key=${it.replica ?? nth} data-tone=${tone}><span class="swatch" style=${ofModel(it.model)}></span><span class="grow"><b>${short(it.model, 60)}</b> <span class="soft figure">${it.replica ?? ''}</span><br /><span class="soft">${clean(it.reason)}${it.in_flight ? `; ${count(it.in_flight, 'request')} in flight may finish` : ''}</span></span><${Places} of=${it.devices} /></li>`)}
    ${list.length > SHOWN && html`<li class="soft">and ${list.length - SHOWN} more</li>`}</ul>`;
}

/** `assumed` is what is sent: {cordoned, priorities}. It is asked again when that changes. */
export function WhatIf({ assumed }) {
  const [answer, setAnswer] = useState(null), [failure, setFailure] = useState(null), [asking, setAsking] = useState(true), asked = JSON.stringify(assumed);
  useEffect(() => {
    const abort = new AbortController();
    setAsking(true);
    const timer = setTimeout(async () => {
      try {
        const found = await post('/admin/what-if', JSON.parse(asked), { signal: abort.signal });
        setAnswer(found);
        setFailure(null);
      } catch (error) { if (!abort.signal.aborted) { setAnswer(null); setFailure(error); } }
      if (!abort.signal.aborted) setAsking(false);
    }, answer ? WAIT_MS : 0);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [asked]);
  const lost = answer?.next.filter(it => !it.feasible) ?? [], stays = answer && !answer.leaving.length && !answer.loads.length && !lost.length;
  return html`<div aria-live="polite" aria-busy=${String(asking)} class=${asking && answer ? 'plan-answer stale what-if' : 'plan-answer what-if'}>${failure && html`<${FailureLine} failure=${failure} />`}${!answer && asking && html`<p class="soft">Asking the pool…</p>`}
    ${answer && html`<p class="plan-verdict" data-tone=${lost.length ? 'bad' : 'good'}><${Icon} name=${lost.length ? 'alert' : 'check'} /><span>${stays ? 'Nothing would leave, and nothing would be loaded.'
      : [answer.leaving.length && `${count(answer.leaving.length, 'replica')} would leave`, answer.loads.length && `${count(answer.loads.length, 'load')} would begin`, lost.length && `${count(lost.length, 'model')} would not fit`].filter(Boolean).join(', ') + '.'}</span></p>
      <${Replicas} title="Leaves" of=${answer.leaving} tone="bad" /><${Replicas} title="Is loaded at once" of=${answer.loads} tone="good" />
      ${answer.next.length > 0 && html`<h3>At its next request, each for itself</h3><ul class="plain lines">${answer.next.slice(0, SHOWN).map(it => html`<li key=${it.model}><span class="swatch" style=${ofModel(it.model)}></span><span class="grow"><b>${short(it.model, 60)}</b><br /><span class=${it.feasible ? 'soft' : 'bad-words'}>${clean(it.reason)}</span>${
        it.victims.length > 0 && html`<br /><span class="soft">evicts ${it.victims.map(one => short(one.model, 40)).join(', ')}</span>`}</span>${it.feasible && html`<${Places} of=${it.placement} />`}</li>`)}</ul>`}`}</div>`;
}

/** The answer alone, for those who want to know and change nothing. */
export function WhatIfDialog({ title, assumed, close }) {
  return html`<${Dialog} wide title=${title} close=${close} foot=${html`<span class="soft foot-note">Nothing is changed.</span><${Button} kind="main" onClick=${close} data-first>Close<//>`}><${WhatIf} assumed=${assumed} /><//>`;
}
