// The first page for users: their models with states, their requests, and a link to try a model.
import { html, useMemo, useState } from '../lib/view.js';
import { BASE, session } from '../lib/api.js';
import { sum } from '../lib/device.js';
import { poolNow, ticks, useNow } from '../lib/live.js';
import { tokensOf, useMe, useMyUsage } from '../lib/me.js';
import { clean, count, countdown, hourMinute, short, span } from '../lib/text.js';
import { link } from '../lib/route.js';
import { Button, Empty, Head, Loading, Name, Problem, Search, State, copyText } from '../parts/bits.js';
import { Table } from '../parts/table.js';
import { tell } from '../parts/messages.js';
import { STAGES } from './queue.js';

/** Largest number of cards per kind. */
const CARDS = 12;

const COLUMNS = [
  { id: 'model', title: 'Model', grow: 3, least: 140, cell: (it, width) => html`<span class="stack"><${Name} of=${it.model} />${width < 620 ? html`<span class="row-small"><${State} of=${it.state} /></span>` : it.aliases.length > 0 && html`<span class="soft clip" title=${it.aliases.join(', ')}>also ${it.aliases.map(one => short(one, 40)).join(', ')}</span>`}</span>` },
  { id: 'state', title: 'State', width: '150px', hide: 620, cell: it => html`<${State} of=${it.state} />` },
  { id: 'wait', title: 'A request now', grow: 3, hide: 700, cell: it => html`<span class="soft">${ifAsked(it)}</span>` },
  { id: 'act', title: 'Try', quiet: true, right: true, width: '64px', cell: it => html`<a class="text-button" href=${link('playground', { models: it.model })}>Try it</a>` },
];

const ifAsked = it => it.remote ? 'is forwarded to another server' : { ready: 'is answered immediately', asleep: 'wakes it, in seconds', cold: `loads it first, in about ${span(it.load_ms_expected)}`, loading: 'waits for its load', waiting: 'waits for memory', fetching: 'waits for its download', draining: 'loads it again after it has left',
  cooling: 'waits: its last load failed and is retried soon', quarantined: 'is refused until an administrator has checked the model' }[it.state] ?? '';

/** A waiting request: its reason, position and progress. */
function WaitingCard({ of: it, readAt, now }) {
  const age = Math.max(0, ticks() - readAt) + 0 * now, waited = it.waited_ms + age, left = Math.max(0, it.expected_ms - age);
  return html`<li class="mine"><div class="mine-head"><${Name} of=${it.model} most=${60} /><span class="figure soft">${it.ticket}</span></div>
    <p>Place <b class="figure">${it.position}</b>, because ${STAGES[it.stage] ?? clean(it.stage)}.</p>
    ${it.expected_ms > 0 && html`<progress max=${waited + left} value=${waited} aria-label=${`The wait for ${short(it.model, 60)}`}></progress>`}
    <p class="mine-facts"><span>waiting for <b class="figure">${countdown(waited)}</b></span><span>${it.expected_ms > 0 ? left > 0 ? html`expected in <b class="figure">${countdown(left)}</b>, at ${hourMinute(poolNow() + left)}` : 'later than expected' : 'no estimate yet'}</span></p></li>`;
}

const RunningCard = ({ of: it, readAt, now }) => html`<li class="mine running"><div class="mine-head"><${Name} of=${it.model} most=${60} /><${State} of="ready" /></div>
  <p class="mine-facts"><span>running for <b class="figure">${countdown(it.running_ms + Math.max(0, ticks() - readAt) + 0 * now)}</b></span><span>${it.waited_ms < 50 ? 'it did not wait' : html`after a wait of ${span(it.waited_ms)}`}</span></p></li>`;

function Requests({ of: me, readAt }) {
  const now = useNow(500), waiting = me.waiting.slice(0, CARDS), running = me.running.slice(0, CARDS), left = me.waiting.length + me.running.length - waiting.length - running.length;
  if (!me.waiting.length && !me.running.length) return null;
  return html`<section class="block-section"><h2>Your requests <span class="soft">${[me.waiting.length && `${me.waiting.length} waiting`, me.running.length && `${me.running.length} running`].filter(Boolean).join(', ')}</span></h2>
    <ul class="mine-list">${waiting.map(it => html`<${WaitingCard} key=${it.ticket} of=${it} readAt=${readAt} now=${now} />`)}${running.map((it, nth) => html`<${RunningCard} key=${`r${nth}`} of=${it} readAt=${readAt} now=${now} />`)}</ul>${left > 0 && html`<p class="soft">${left} more are not shown.</p>`}</section>`;
}

export function Home() {
  const who = session.use(it => it.who), [me, failure, readAt] = useMe(), [usage] = useMyUsage(1), [find, setFind] = useState('');
  const models = me?.models, rows = useMemo(() => (models ?? []).filter(it => it.model.toLowerCase().includes(find.toLowerCase()) || it.aliases.some(one => one.toLowerCase().includes(find.toLowerCase()))), [models, find]), address = `${BASE}/v1`;
  const today = usage?.days.find(it => it.day === usage.today)?.models ?? [], tokens = sum(today, tokensOf), most = me?.limits.tokens_per_day;
  const tile = (value, word, tone) => html`<div class="tile" data-tone=${tone}><span class="tile-value figure">${value}</span><span class="tile-word">${word}</span></div>`;
  return html`<${Head} title="Your models" about=${models ? `${count(models.length, 'model')}, ${models.filter(it => it.state === 'ready').length} ready` : undefined}><${Search} label="Find a model" value=${find} onInput=${setFind} /><//>
    ${failure && html`<${Problem} failure=${failure} />`}${!me && !failure && html`<${Loading} />`}
    ${me && who?.by !== 'nothing' && html`<div class="tiles" role="group" aria-label="Today">${tile(me.running.length, 'requests running')}${tile(me.waiting.length, 'requests waiting', me.waiting.length ? 'busy' : '')}${tile(sum(today, it => it.requests).toLocaleString('en'), 'requests today')}
      ${tile(most ? html`${tokens.toLocaleString('en')} <span class="soft">of ${most.toLocaleString('en')}</span>` : tokens.toLocaleString('en'), 'tokens today', most && tokens >= most ? 'bad' : '')}</div>`}
    ${me && html`<${Requests} of=${me} readAt=${readAt} />`}
    ${me && html`<${Table} label="Your models" columns=${COLUMNS} rows=${rows} id=${it => it.model} rowHeight=${innerWidth < 760 ? 56 : 48} hold=${{ by: find, find: name => models.find(it => it.model === name) }} empty=${html`<${Empty} icon="models" title=${models.length ? 'No model has this name' : 'Your key may not use any model'}>${models.length ? 'Search for another part of its name.' : 'Ask an administrator.'}<//>`} />`}
    ${me && html`<p class="home-who home-base">Base URL for OpenAI’s clients: <code>${address}</code> <${Button} icon="copy" onClick=${async () => { if (await copyText(address)) tell('The address is copied'); }}>Copy<//></p>`}`;
}
