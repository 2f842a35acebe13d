// Batches of requests: of all keys for administrators and viewers, and a user's own. A dialog confirms every change.
import { html, useCallback, useEffect, useState } from '../lib/view.js';
import { BASE, get, post, READ_ONLY, request, session, useMayChange } from '../lib/api.js';
import { clean, count, short, span } from '../lib/text.js';
import { Ago, Button, Choice, Clock, Empty, Head, Loading, Problem, Search } from '../parts/bits.js';
import { Confirm, openDialog } from '../parts/dialog.js';
import { Menu } from '../parts/menu.js';
import { tell } from '../parts/messages.js';
import { Table } from '../parts/table.js';
import { Sign } from './nodes.js';

const READ_EVERY = 3000, PAGE = 100, PAGE_MAX = 1000;
/** Below this width in pixels, all facts of a batch are in its first column. */
const NARROW = 700;
const STATES = { completed: ['good', 'Completed'], failed: ['bad', 'Failed'], expired: ['bad', 'Expired'], cancelled: ['none', 'Cancelled'], cancelling: ['going', 'Cancelling'], finalizing: ['busy', 'Finishing'] };
const SHOWN = [['open', 'Open'], ['all', 'All']];
const number = it => it.toLocaleString('en');
const isOpen = it => ['in_progress', 'finalizing', 'cancelling'].includes(it.status);
const stateOf = it => STATES[it.status] ?? (it.model_pool.paused ? ['sleep', 'Paused'] : it.model_pool.in_flight > 0 ? ['busy', 'Running'] : ['none', 'Waiting']);
const modelsOf = it => (it.models ?? []).map(one => short(one.model, 60)).join(', ');
const time = seconds => new Date(seconds * 1000).toISOString();
const byAge = (one, other) => one.created_at - other.created_at || (one.id < other.id ? -1 : 1);

/** Open batches in the order in which they run, then the others, latest first. */
function inOrder(batches) {
  const open = batches.filter(isOpen).sort((one, other) => (other.rank ?? 0) - (one.rank ?? 0) || byAge(one, other));
  return [...open, ...batches.filter(it => !isOpen(it)).sort((one, other) => byAge(other, one))];
}

/** The nearest rank at which a batch runs before (-1) or after (1) its neighbour, with the neighbour; null at the end of the list. */
function rankNextTo(batches, it, step) {
  const line = batches.filter(one => one.status === 'in_progress'), other = line[line.indexOf(it) + step];
  if (!line.includes(it) || !other) return null;
  const isSettledByAge = step < 0 ? it.created_at < other.created_at : it.created_at > other.created_at;
  return { rank: other.rank - (isSettledByAge ? 0 : step), other };
}

function Progress({ of: it }) {
  const { total, completed, failed } = it.request_counts, part = requests => ({ '--part': total ? requests / total : 0 });
  return html`<span class="stack"><span class="meter batch-meter" role="img" aria-label=${`${number(completed)} done and ${number(failed)} failed of ${number(total)}`}><span style=${part(completed)}></span><span data-tone="bad" style=${part(failed)}></span></span>
    <span class="soft small clip figure">${number(completed + failed)} of ${number(total)}${failed > 0 && html`, <span class="bad-words">${number(failed)} failed</span>`}</span></span>`;
}

function TimeLeft({ of: it }) {
  const ended = it.completed_at ?? it.failed_at ?? it.expired_at ?? it.cancelled_at;
  if (!isOpen(it)) return html`<span class="soft">ended <${Ago} at=${ended && time(ended)} none="earlier" /></span>`;
  const { expected_seconds: left, will_hold: holds } = it.model_pool;
  return html`<span class="stack"><span class="clip">${left === null || left === undefined ? html`<span class="faint">not known yet</span>` : html`about <span class="figure">${span(left * 1000)}</span>`}${holds === false && html` <b class="warn">too late</b>`}${holds === true && html` <span class="soft">in time</span>`}</span>
    <span class="soft small clip">until <${Clock} at=${time(it.expires_at)} /></span></span>`;
}

function About({ of: it, width }) {
  const failure = it.errors?.data?.[0]?.message, holder = it.holder && [short(it.holder, 60), it.group && short(it.group, 60)].filter(Boolean).join(' · ');
  const second = [holder ?? it.endpoint, width < 900 && modelsOf(it)].filter(Boolean).join(' · ');
  return html`<span class="stack"><b class="clip figure" title=${clean(it.id)}>${short(it.id, 24)}</b><span class="soft small clip" title=${second}>${second}</span>
    ${failure && html`<span class="bad-words small clip" title=${clean(failure)}>${short(failure, 160)}</span>`}
    ${width < NARROW && html`<${Progress} of=${it} /><span class="row-small"><${Sign} of=${stateOf(it)} /><span class="soft"><${TimeLeft} of=${it} /></span></span>`}</span>`;
}

/** Confirms an order about a batch and carries it out. */
function Order({ of: it, order: { title, action, words, told, danger, send }, done, close }) {
  const act = async () => { await send(); tell(told); done(); };
  return html`<${Confirm} title=${title} close=${close} danger=${danger} action=${action} act=${act}><p>${words}</p><p class="soft"><span class="figure">${clean(it.id)}</span>: ${number(it.request_counts.completed + it.request_counts.failed)} of ${count(it.request_counts.total, 'request')} ${it.request_counts.total === 1 ? 'has' : 'have'} a result.</p><//>`;
}

/** Saves the results of a file with the browser. */
function save(file) {
  const anchor = document.createElement('a');
  anchor.href = `${BASE}/v1/files/${encodeURIComponent(file)}/content`;
  anchor.download = `${file.replace(/[^\w.-]+/g, '_').slice(0, 100)}.jsonl`;
  anchor.click();
}

function ordersOf(it, batches, isUser) {
  const name = short(it.id, 24), patch = body => () => request('PATCH', '/admin/batches', { query: { id: it.id }, body });
  const cancel = isUser ? () => post(`/v1/batches/${encodeURIComponent(it.id)}/cancel`) : () => request('POST', '/admin/batches/cancel', { query: { id: it.id }, body: {} });
  const ranked = (step, word) => {
    const to = isUser ? null : rankNextTo(batches, it, step);
    return to && { title: `Run ${name} ${word}`, action: `Set rank ${to.rank}`, words: html`Its rank becomes ${to.rank}, so that it runs ${step < 0 ? 'before' : 'after'} <span class="figure">${short(to.other.id, 40)}</span>. The order counts among batches for the same model.`, told: `${name}: rank ${to.rank}`, send: patch({ rank: to.rank }) };
  };
  return {
    pause: { title: `Pause ${name}`, action: 'Pause', words: 'No more of its requests begin; requests that run may end. Its completion window continues to run.', told: `${name} is paused`, send: patch({ paused: true }) },
    resume: { title: `Resume ${name}`, action: 'Resume', words: 'Its requests begin again in the room that other requests leave.', told: `${name} is resumed`, send: patch({ paused: false }) },
    earlier: ranked(-1, 'earlier'), later: ranked(1, 'later'),
    cancel: { title: `Cancel ${name}`, action: 'Cancel the batch', danger: true, words: 'No more of its requests begin. Results so far stay, and the other requests get an error. This cannot be undone.', told: `${name} is cancelled`, send: cancel },
  };
}

function Actions({ of: it, batches, isUser, may, done }) {
  const orders = ordersOf(it, batches, isUser), runs = it.status === 'in_progress';
  const open = order => () => openDialog(Order, { of: it, order, done });
  const item = (word, order, icon, more = {}) => {
    const why = !may ? READ_ONLY : !runs ? 'The batch has ended or ends.' : 'No other batch is there.';
    return [word, open(order), { icon, disabled: !may || !runs || !order, why, ...more }];
  };
  const steering = isUser ? [] : [
    it.model_pool.paused ? item('Resume…', orders.resume, 'play') : item('Pause…', orders.pause, 'pause'),
    item('Run earlier…', orders.earlier, 'up'), item('Run later…', orders.later, 'down'), null,
  ];
  const files = isUser ? [['Results', it.output_file_id], ['Errors', it.error_file_id]].map(([word, file]) => [`Save ${word.toLowerCase()}`, () => save(file), { icon: 'download', disabled: !file, why: `There are no ${word.toLowerCase()} yet.` }]) : [];
  return html`<${Menu} label=${`Actions for the batch ${short(it.id, 40)}`} items=${[...steering, ...files, item('Cancel…', orders.cancel, 'close', { danger: true })]} />`;
}

function columnsOf(batches, isUser, may, done) {
  return [
    { id: 'batch', title: 'Batch', grow: 2, least: 150, cell: (it, width) => html`<${About} of=${it} width=${width} />` },
    !isUser && { id: 'models', title: 'Models', grow: 1, least: 110, hide: 900, cell: it => html`<span class="clip" title=${it.models.map(one => `${clean(one.model)}: ${number(one.requests)}`).join('\n')}>${modelsOf(it)}</span>` },
    { id: 'progress', title: 'Progress', grow: 1, least: 170, hide: NARROW, cell: it => html`<${Progress} of=${it} />` },
    { id: 'time', title: 'Time left', width: '190px', hide: NARROW, cell: it => html`<${TimeLeft} of=${it} />` },
    { id: 'state', title: 'State', width: '110px', hide: NARROW, cell: it => html`<${Sign} of=${stateOf(it)} />` },
    !isUser && { id: 'rank', title: 'Rank', right: true, width: '64px', hide: 1000, cell: it => html`<span class=${it.rank ? 'figure' : 'figure faint'}>${number(it.rank)}</span>` },
    { id: 'act', title: 'Actions', quiet: true, right: true, width: '40px', cell: it => html`<${Actions} of=${it} batches=${batches} isUser=${isUser} may=${isUser || may} done=${done} />` },
  ].filter(Boolean);
}

export function Batches() {
  const isUser = session.use(it => it.who?.role === 'user'), may = useMayChange();
  const [list, setList] = useState(null), [failure, setFailure] = useState(null), [shown, setShown] = useState('all'), [find, setFind] = useState(''), [limit, setLimit] = useState(PAGE);
  const read = useCallback(() => get(isUser ? '/v1/batches' : '/admin/batches', { limit }).then(it => {
    setList({ batches: inOrder(it.batches ?? it.data), hasMore: Boolean(it.next_after ?? it.has_more) });
    setFailure(null);
  }, setFailure), [isUser, limit]);
  useEffect(() => {
    read();
    const timer = setInterval(() => { if (!document.hidden) read(); }, READ_EVERY);
    return () => clearInterval(timer);
  }, [read]);
  const title = isUser ? 'Your batches' : 'Batches', batches = list?.batches ?? [], open = batches.filter(isOpen).length;
  const letters = find.trim().toLowerCase(), rows = batches.filter(it => (shown === 'all' || isOpen(it)) && `${it.id} ${it.holder ?? ''} ${it.group ?? ''} ${modelsOf(it)} ${it.endpoint}`.toLowerCase().includes(letters));
  const empty = html`<${Empty} icon="batches" title=${batches.length ? 'No batch is like this' : 'No batches'}>${batches.length ? 'Search for another name, or show all.' : html`A batch is a file of requests that run in the room that others leave: <code>model-pool batch FILE</code>.`}<//>`;
  return html`<${Head} title=${title} about=${list ? `${count(open, 'open batch', 'open batches')}, ${batches.length - open} ended` : undefined}><${Search} label="Find a batch" value=${find} onInput=${setFind} /><${Choice} label="Batches shown" value=${shown} of=${SHOWN} onChange=${setShown} /><//>
    ${failure && html`<${Problem} failure=${failure} again=${read} />`}${!list && !failure && html`<${Loading} />`}
    ${list && html`<${Table} label=${title} columns=${columnsOf(batches, isUser, may, read)} rows=${rows} id=${it => it.id} rowHeight=${innerWidth < 760 ? 124 : 68} hold=${{ by: `${shown} ${find}`, find: name => batches.find(it => it.id === name) }} empty=${empty} />`}
    ${list?.hasMore && html`<p class="soft center">${!isUser && limit < PAGE_MAX ? html`<${Button} onClick=${() => setLimit(PAGE_MAX)}>Show older batches<//>` : `Older batches are not shown; ${isUser ? 'GET /v1/batches lists them' : 'admin-client batches lists them'}.`}</p>`}`;
}
