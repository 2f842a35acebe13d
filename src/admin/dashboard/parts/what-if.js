// A preview of a cordon or a priority, computed by the pool on a copy of its state before anything is ordered.
import { html, useEffect, useState } from '../lib/view.js';
import { signOfEffects, whatIf } from '../lib/orders.js';
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

/**
 * `assumed` is the request: {cordoned, priorities}. `onPreview` gets the current preview, or null while there is none. `review` is a ref:
 * it gets a function that reads the preview again and resolves to true if it is still the same; otherwise the new one is shown.
 */
export function WhatIf({ assumed, onPreview, review }) {
  const [answer, setAnswer] = useState(null), [failure, setFailure] = useState(null), [asking, setAsking] = useState(true), [isOutdated, setOutdated] = useState(false), [nth, setNth] = useState(0), asked = JSON.stringify(assumed);
  useEffect(() => {
    const abort = new AbortController();
    setAsking(true);
    setOutdated(false);
    const timer = setTimeout(async () => {
      try {
        const found = await whatIf(JSON.parse(asked), abort.signal);
        setAnswer(found);
        setFailure(null);
      } catch (error) { if (!abort.signal.aborted) { setAnswer(null); setFailure(error); } }
      if (!abort.signal.aborted) setAsking(false);
    }, answer ? WAIT_MS : 0);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [asked, nth]);
  useEffect(() => { onPreview?.(asking ? null : answer); }, [answer, asking]);
  if (review) {
    review.current = async () => {
      const found = await whatIf(JSON.parse(asked)), isSame = signOfEffects(found) === signOfEffects(answer);
      setAnswer(found);
      setOutdated(!isSame);
      return isSame;
    };
  }
  const lost = answer?.next.filter(it => !it.feasible) ?? [], stays = answer && !answer.leaving.length && !answer.loads.length && !lost.length;
  return html`<div aria-live="polite" aria-busy=${String(asking)} class=${asking && answer ? 'plan-answer stale what-if' : 'plan-answer what-if'}>${failure && html`<${FailureLine} failure=${failure} /><p><${Button} busy=${asking} onClick=${() => setNth(nth + 1)}>Preview again<//></p>`}${!answer && asking && html`<p class="soft">Reading the preview…</p>`}
    ${isOutdated && html`<p class="notice" role="alert"><${Icon} name="alert" />The pool has changed since this preview, so nothing was ordered. This is the preview now; confirm it again.</p>`}
    ${answer && html`<p class="plan-verdict" data-tone=${lost.length ? 'bad' : answer.leaving.length ? 'going' : 'good'}><${Icon} name=${lost.length || answer.leaving.length ? 'alert' : 'check'} /><span>${stays ? 'Nothing would leave, and nothing would be loaded.'
      : [answer.leaving.length && `${count(answer.leaving.length, 'replica')} would leave`, answer.loads.length && `${count(answer.loads.length, 'load')} would begin`, lost.length && `${count(lost.length, 'model')} would not fit`].filter(Boolean).join(', ') + '.'}</span></p>
      <${Replicas} title="Leaves" of=${answer.leaving} tone="bad" /><${Replicas} title="Loads" of=${answer.loads} tone="good" />
      ${answer.next.length > 0 && html`<h3>At its next request, each on its own</h3><ul class="plain lines">${answer.next.slice(0, SHOWN).map(it => html`<li key=${it.model}><span class="swatch" style=${ofModel(it.model)}></span><span class="grow"><b>${short(it.model, 60)}</b><br /><span class=${it.feasible ? 'soft' : 'bad-words'}>${clean(it.reason)}</span>${
        it.victims.length > 0 && html`<br /><span class="soft">evicts ${it.victims.map(one => short(one.model, 40)).join(', ')}</span>`}</span>${it.feasible && html`<${Places} of=${it.placement} />`}</li>`)}</ul>`}`}</div>`;
}

/** The preview only, without an order. */
export function WhatIfDialog({ title, assumed, close }) {
  return html`<${Dialog} wide title=${title} close=${close} foot=${html`<span class="soft foot-note">Nothing is changed.</span><${Button} kind="main" onClick=${close} data-first>Close<//>`}><${WhatIf} assumed=${assumed} /><//>`;
}
