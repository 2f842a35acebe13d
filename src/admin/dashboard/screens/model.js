// One model in detail, in a panel next to the screen from which it was opened.
import { html, useEffect, useLayoutEffect, useState } from '../lib/view.js';
import { get, mayChange } from '../lib/api.js';
import { bytes, clean, count, countdown, short, sourceOf, span } from '../lib/text.js';
import { byName, live, useNow } from '../lib/live.js';
import { kindTone, kindWord } from '../lib/history.js';
import { go, link, route } from '../lib/route.js';
import { sum } from '../lib/device.js';
import { Ago, Button, Clock, Fact, IconButton, Keys, Name, State, ofModel, progressOf } from '../parts/bits.js';
import { Icon } from '../parts/icons.js';
import { Menu } from '../parts/menu.js';
import { actionsOf, openLease, openUnload } from '../parts/model-actions.js';
import { openPlan } from '../parts/plan.js';
import { Lease, PriorityField } from './models.js';

function close() {
  const { screen, query } = route.get();
  go(screen, { ...query, model: undefined });
}

function useEventsOf(name, moment) {
  const [events, setEvents] = useState(null);
  useEffect(() => {
    const abort = new AbortController();
    get('/admin/events', { model: name, limit: 12 }, { signal: abort.signal }).then(it => setEvents([...it.events].reverse()), () => { if (!abort.signal.aborted) setEvents([]); });
    return () => abort.abort();
  }, [name, moment]);
  return events;
}

export function ModelPanel({ name }) {
  live.use(it => it.models);
  const model = byName.get(name), isKnown = live.get().has;
  // A layout effect, to miss no key pressed immediately after the panel opens.
  useLayoutEffect(() => {
    const onKey = event => { if (event.key === 'Escape' && !document.querySelector('dialog[open]') && !event.target.closest?.('.menu')) close(); };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return html`<aside class="panel" aria-label=${`Model ${short(name, 60)}`}><header class="panel-head" style=${ofModel(name)}><div class="grow"><h2><${Name} of=${name} most=${120} /></h2>
    ${model && html`<p class="panel-state"><${State} of=${model.state} more=${progressOf(model)?.words} /></p>`}</div>
    ${model && html`<${Menu} label="More actions" items=${actionsOf(model)} />`}<${IconButton} icon="close" label="Close the panel" onClick=${close} /></header>
    ${model ? html`<${Body} model=${model} key=${name} />` : html`<p class="notice" role="alert"><${Icon} name="alert" />${isKnown ? 'This model is not in the catalogue. It may have been removed while this panel was open.' : 'Waiting for the pool…'}</p>
      ${isKnown && html`<p class="panel-pad"><a href=${link('events', { of: name })}>Its history</a></p>`}`}</aside>`;
}

function Body({ model }) {
  const name = model.model, may = mayChange(), isLoaded = model.replicas.some(it => it.state !== 'planned');
  const events = useEventsOf(name, `${model.state} ${model.replicas.length} ${model.priority}`);
  const percent = progressOf(model)?.percent;
  return html`<div class="panel-body">
    ${percent != null && html`<progress max="100" value=${percent} aria-label="Loading"></progress>`}
    <div class="panel-actions"><${Button} kind="main" icon="up" onClick=${() => openPlan(name)}>${isLoaded ? 'Plan a load' : 'Plan and load'}<//>
      ${isLoaded && html`<${Button} icon="eject" disabled=${!may} onClick=${() => openUnload([name])}>Unload<//>`}
      <a class="button" href=${link('logs', { model: name })}><${Icon} name="logs" /><span>Log</span></a><a class="button" href=${link('events', { of: name })}><${Icon} name="why" /><span>Why</span></a></div>
    ${model.file_error && html`<div class="notice"><${Icon} name="alert" /><div><p>${model.state === 'broken' ? 'The model’s file cannot be used, so the model is not served.' : 'The model’s file cannot be used. Its last good version is served.'}</p><pre class="wrap">${clean(model.file_error)}</pre></div></div>`}
    ${model.failures > 0 && html`<div class="notice"><${Icon} name="alert" /><div><p>${count(model.failures, 'failed load')} in a row. ${model.state === 'quarantined' ? 'It is not loaded again until an administrator loads it or its configuration changes (L3).' : ''}${model.cooling_until_at && model.state !== 'quarantined' ? html` Next try from <${Clock} at=${model.cooling_until_at} />.` : ''}</p>
      ${model.last_failure && html`<pre class="wrap">${clean(model.last_failure)}</pre>`}<p><a href=${link('logs', { model: name })}>Engine output</a></p></div></div>`}
    ${model.warnings?.map(it => html`<p class="notice" key=${it}><${Icon} name="alert" />${clean(it)}</p>`)}
    <dl class="facts">
      <${Fact} label="Priority"><${PriorityField} model=${model} /> <span class="soft">${model.priority_from === 'override' ? 'override' : `from ${model.priority_from}`}</span> <${Lease} model=${model} /><//>
      <${Fact} label="Keep hot">${model.always_hot ? 'always, by its priority (P4)' : model.keep_hot_ms === null ? 'until its memory is needed' : span(model.keep_hot_ms)} ${may && html`<button type="button" class="text-button" onClick=${() => openLease(name)}>Lease…</button>`}<//>
      <${Fact} label="Waiting">${model.waiting ? html`<a href=${link('queue')}>${count(model.waiting, 'request')}</a>` : 'no request'}<//>
      <${Fact} label="Last used"><${Ago} at=${model.last_used_at} />, ${count(model.requests_total, 'request')} since the start<//>
      <${Fact} label="Needs"><span class="figure">${count(model.needs.devices, 'device')} × ${bytes(model.needs.bytes_per_device)}</span> <span class="soft">(${sourceOf(model.needs)})</span><//>
      <${Fact} label="Estimated">${model.estimated_bytes_per_device === null ? '—' : html`<span class="figure">${bytes(model.estimated_bytes_per_device)}</span> <span class="soft">on each device</span>`}<//>
      <${Fact} label="Learned">${model.learned.length ? model.learned.map(it => html`<span class="figure" key=${it.kind}>${bytes(it.bytes_per_device)} <span class="soft">on ${short(it.kind, 40)}</span> </span>`) : html`<span class="faint">nothing measured yet</span>`}<//>
      <${Fact} label="Load time">${model.load_times.length ? model.load_times.map(it => html`<span class="figure" key=${it.source}>${span(it.ms)} <span class="soft">from ${it.source}</span> </span>`) : html`<span class="soft">expected: ${span(model.load_ms_expected)}</span>`}<//>
      <${Fact} label="Engine">${model.engine}<//>
      ${model.weights && html`<${Fact} label="Weights">${clean(model.weights.from)}${model.weights.here ? ', here' : ', not here yet'}<//>`}
      ${model.aliases.length > 0 && html`<${Fact} label="Aliases">${model.aliases.map(it => short(it, 60)).join(', ')}<//>`}
      <${Fact} label="File"><span class="wrap">${clean(model.source)}</span><//></dl>
    <h3>Replicas</h3>${model.replicas.length === 0 ? html`<p class="soft">None. A request or a load order starts one.</p>` : model.replicas.map(it => html`<${Replica} key=${it.replica} replica=${it} model=${model} may=${may} />`)}
    <h3>Last decisions</h3>${events === null ? html`<p class="soft">Reading…</p>` : events.length === 0 ? html`<p class="soft">None recorded.</p>` : html`<ol class="plain decisions">${events.map(it => html`<li key=${it.id}><a class="decision" href=${link('events', { of: name, event: it.id })}>
      <span class="decision-head"><span class="kind" data-tone=${kindTone(it.kind)}>${kindWord(it.kind)}</span><${Clock} at=${it.at} /></span><span class="soft decision-why">${clean(it.reason)}</span></a></li>`)}</ol>`}
    <p class="soft panel-keys">Close with <${Keys} of="Esc" /></p></div>`;
}

function Replica({ replica, model, may }) {
  const now = useNow(1000);
  const engine = [replica.engine_running !== null && `${replica.engine_running} running`, replica.engine_waiting ? `${replica.engine_waiting} queued` : '', replica.engine_cache_per_mille !== null && `cache ${Math.round(replica.engine_cache_per_mille / 10)} %`];
  return html`<div class="replica"><p class="replica-head"><b class="figure">${replica.replica}</b><${State} of=${replica.state} more=${replica.percent !== null ? `${replica.percent} %` : null} /><span class="grow"></span>
      ${may && replica.state === 'ready' && html`<button type="button" class="text-button" onClick=${() => openUnload([model.model], replica.replica)}>Unload</button>`}</p>
    <p class="soft">${replica.devices.map(it => `${it.device}: ${bytes(it.bytes)}`).join(', ') || 'no device yet'}${replica.measured_bytes !== null ? `; measured ${bytes(replica.measured_bytes)} of ${bytes(sum(replica.devices, it => it.bytes))}` : ''}</p>
    <p class="soft">${count(replica.in_flight, 'request')} in flight${engine.filter(Boolean).length ? `; engine: ${engine.filter(Boolean).join(', ')}` : ''}${replica.members ? `; processes: ${replica.members.map(it => `rank ${it.rank} on ${it.node}${it.has_ended ? ' ended' : it.pid ? ` ${it.pid}` : ' starting'}`).join(', ')}` : replica.pid ? `; process ${replica.pid}` : ''}</p>
    ${replica.without_progress_ms > 20_000 && html`<p class="warn">No progress for ${span(replica.without_progress_ms)}.</p>`}
    <p>${replica.ready_at && html`<span class="soft">ready since <${Clock} at=${replica.ready_at} /></span>`}${replica.expires_at && html` <span>leaves in <b class="figure">${countdown(Date.parse(replica.expires_at) - now)}</b> if unused</span>`}${replica.leased_until_at && html` <span>leased: protected for <b class="figure">${countdown(Date.parse(replica.leased_until_at) - now)}</b></span>`}</p>
    <p class="soft">${clean(replica.reason)}</p></div>`;
}
