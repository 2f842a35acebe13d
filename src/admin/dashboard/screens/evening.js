// The evening cleanup: its schedule, a preview, and a manual run.
import { html, useEffect, useState } from '../lib/view.js';
import { get, post, READ_ONLY, useMayChange } from '../lib/api.js';
import { bytes, clean, count, countdown, knownPoolZone } from '../lib/text.js';
import { live, useNow } from '../lib/live.js';
import { sum } from '../lib/device.js';
import { Button, Choice, Clock, Fact, Head, Loading, ModelLink, Problem } from '../parts/bits.js';
import { Confirm, openDialog } from '../parts/dialog.js';
import { tell } from '../parts/messages.js';

const MODES = { all: 'Everything, regardless of priority (E1)', idle: 'Only idle replicas' };

export function Evening() {
  const { evening } = live.use(), now = useNow(1000), may = useMayChange();
  const [config, setConfig] = useState(null), [mode, setMode] = useState(null), [failure, setFailure] = useState(null);
  const chosen = mode ?? config?.evening?.mode ?? 'all', models = live.use(it => it.models);
  useEffect(() => { get('/admin/config').then(setConfig, setFailure); }, []);
  const list = concerned(models, chosen), at = evening?.next_cleanup_at, reopen = evening?.next_reopen_at;
  const until = moment => moment ? html`<b class="figure">in ${countdown(Date.parse(moment) - now)}</b>, <${Clock} at=${moment} />` : html`<span class="soft">not planned</span>`;
  return html`<${Head} title="Evening" about="Drains and unloads the pool at the end of the day; always-hot models come back in the morning." />
    <div class="columns-2"><div><section class="lines-card"><h2>When</h2><dl class="facts"><${Fact} label="Cleanup">${until(at)}<//><${Fact} label="Reopening">${until(reopen)}<//>
      ${config?.evening && html`${config.evening.cleanup && html`<${Fact} label="Schedule"><code>${config.evening.cleanup}</code>, then ${config.evening.reopen ? html`<code>${config.evening.reopen}</code>` : 'immediately'} <span class="soft">(second minute hour day month weekday)</span><//>`}
      <${Fact} label="Zone">${config.evening.timezone}${knownPoolZone() && config.evening.timezone === 'local' ? `: ${knownPoolZone()}` : ''}<//><${Fact} label="Mode">${MODES[config.evening.mode] ?? config.evening.mode}<//><${Fact} label="Drain">at most ${config.evening.drain}<//>`}</dl>
      <p class="soft">From the cleanup to the reopening always-hot models are not protected (E2).</p></section>
    <section class="lines-card"><h2>Reset</h2><p class="soft">A reset unloads everything, forgets failures and load orders, and lets quarantined models be loaded again.</p><div class="panel-actions"><${Button} kind="danger quiet-danger" disabled=${!may} title=${may ? undefined : READ_ONLY} onClick=${() => openDialog(Reset)}>Reset the pool…<//></div></section></div>
    <section class="lines-card"><div class="queue-head"><h2>Preview</h2><span class="grow"></span><${Choice} label="Mode" value=${chosen} of=${[['all', 'All'], ['idle', 'Idle only']]} onChange=${setMode} /></div>
      ${failure && html`<${Problem} failure=${failure} />`}${list.length === 0 ? html`<p class="soft">Nothing would be unloaded.</p>` : html`<${Replicas} list=${list} />
        <p class="soft">${bytes(sum(list, it => it.bytes))} would be free; ${count(sum(list, it => it.in_flight), 'request')} in flight may finish first.</p>`}
      <div class="panel-actions"><${Button} kind="danger quiet-danger" disabled=${!may || !list.length} title=${may ? undefined : READ_ONLY} onClick=${() => openDialog(Run, { mode: chosen })}>Run the cleanup…<//></div></section></div>`;
}

const Replicas = ({ list }) => html`<ul class="plain lines">${list.map(it => html`<li key=${it.replica}><span class="grow"><${ModelLink} of=${it.model} most=${50} /> <span class="soft figure">${it.replica}</span></span>${it.in_flight > 0 && html`<span class="warn figure">${it.in_flight} in flight</span>`}<span class="prio">P${it.priority}</span><span class="figure">${bytes(it.bytes)}</span></li>`)}</ul>`;

/** The replicas that a cleanup would unload now, according to the live view. */
function concerned(models, mode) {
  return models.flatMap(model => model.replicas.filter(it => it.state !== 'planned' && (mode === 'all' || it.in_flight === 0)).map(it => ({ replica: it.replica, model: model.model, priority: model.priority, in_flight: it.in_flight, bytes: sum(it.devices, share => share.bytes) })));
}

/** Shows the pool's own preview before the cleanup runs. */
function Run({ mode, close }) {
  const [preview, setPreview] = useState(null), [failure, setFailure] = useState(null), list = preview?.replicas ?? [];
  useEffect(() => { post('/admin/cleanup', { preview: true, mode }).then(setPreview, setFailure); }, []);
  const act = async () => {
    const id = tell('The cleanup runs', { tone: 'busy', more: 'Requests in flight may finish.' });
    post('/admin/cleanup', { mode }, { timeout: 0 }).then(it => { tell('The cleanup is done', { id, more: `${count(it.unloaded.length, 'replica')} unloaded` }); }, failure => tell('The cleanup was refused', { id, tone: 'bad', more: failure.message }));
  };
  return html`<${Confirm} title="Run the evening cleanup now" close=${close} danger disabled=${!list.length} action=${`Unload ${count(list.length, 'replica')}`} act=${act}><p>${MODES[mode]}. Until the reopening always-hot models are not protected (E2).</p>${failure ? html`<${Problem} failure=${failure} />` : !preview ? html`<${Loading} />` : list.length ? html`<${Replicas} list=${list} />` : html`<p>Nothing is left to unload.</p>`}<//>`;
}

function Reset({ close }) {
  const models = live.use(it => it.models), replicas = concerned(models, 'all');
  const failed = models.filter(it => it.failures > 0);
  const act = async () => {
    const id = tell('The pool is reset', { tone: 'busy' });
    post('/admin/reset', {}, { timeout: 0 }).then(it => tell('The pool is empty', { id, more: `${count(it.unloaded.length, 'replica')} unloaded` }), failure => tell('The reset was refused', { id, tone: 'bad', more: failure.message }));
  };
  return html`<${Confirm} title="Reset the pool" close=${close} danger action="Unload everything and forget failures" act=${act}>${replicas.length ? html`<${Replicas} list=${replicas} />` : html`<p>Nothing is loaded.</p>`}${failed.length > 0 && html`<p>Forgotten: ${failed.map(it => `${clean(it.model)} (${count(it.failures, 'failure')})`).join(', ')}.</p>`}<//>`;
}
