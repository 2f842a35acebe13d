// The playground: chats with one or several models side by side, with timings, and the request as code.
import { html, useEffect, useMemo, useRef, useState } from '../lib/view.js';
import { BASE, failureOf, headers, session } from '../lib/api.js';
import { conversation, requestOf } from '../lib/conversation.js';
import { counted, plan, withEffects } from '../lib/orders.js';
import { readStream } from '../lib/sse.js';
import { live } from '../lib/live.js';
import { useMe } from '../lib/me.js';
import { clean, short, span } from '../lib/text.js';
import { letter, newComparison } from '../lib/votes.js';
import { replace, route } from '../lib/route.js';
import { Button, Choice, Empty, Head, IconButton, Name, State, copyText, ofModel } from '../parts/bits.js';
import { Field } from '../parts/dialog.js';
import { ModelChoice } from '../parts/model-choice.js';
import { tell } from '../parts/messages.js';
import { Vote } from '../parts/vote.js';

const MOST = 4;

/** The reason why the last question cannot be voted on, or null. */
function whyNoVote(talks) {
  const last = talks.map(turns => turns?.at(-1)), asked = turns => JSON.stringify(turns?.map(turn => turn.prompt) ?? []);
  if (last.every(turn => !turn)) return 'Ask them the same question to vote for the better answer.';
  if (last.some(turn => turn && turn.took === null)) return 'You can vote when every model has answered.';
  if (new Set(talks.map(asked)).size > 1) return 'No vote: the models were not asked the same questions. Start over to compare them.';
  if (last.some(turn => turn.failure || turn.isStopped || !turn.text)) return 'No vote on this question: an answer failed, was stopped or is empty.';
  return null;
}

/** The comparison of these models, kept until others are chosen. Must not trigger another render. */
function comparisonOf(chosen, isHidden) {
  const state = conversation.get(), now = state.comparison;
  if (now && now.of === chosen.join('\n') && (now.isHidden === isHidden || now.vote)) return now;
  state.comparison = newComparison(chosen, isHidden);
  return state.comparison;
}

/** The default model: the most recently used ready model. */
function likely(models) {
  const used = model => Date.parse(model.last_used_at) || 0;
  return models.filter(model => model.state === 'ready').reduce((best, model) => !best || used(model) > used(best) ? model : best, null)?.model ?? null;
}

/** The label of the send button, including the effect on models that are not loaded. */
function useSendWords(chosen, models, isHidden, isTyped) {
  const isUser = session.use(state => state.who?.role === 'user'), [victims, setVictims] = useState([]);
  const idle = chosen.filter(name => ['cold', 'asleep', 'cooling'].includes(models.find(model => model.model === name)?.state)), names = idle.join('\n');
  useEffect(() => {
    const abort = new AbortController();
    setVictims([]);
    if (isUser || !isTyped) return undefined;
    Promise.all(idle.map(model => plan({ model }, abort.signal).catch(() => null))).then(plans => {
      const all = plans.flatMap(one => one?.feasible ? one.victims : []);
      if (!abort.signal.aborted) setVictims([...new Map(all.map(victim => [victim.replica, victim])).values()]);
    });
    return () => abort.abort();
  }, [names, isUser, isTyped]);
  const send = chosen.length > 1 ? `Send to ${chosen.length}` : 'Send';
  return isHidden ? send : withEffects(send, [idle.length > 0 && `load ${idle.length === 1 ? short(idle[0], 30) : `${idle.length} models`}`, counted('evict', victims)]);
}

const MODES = [['chat', 'Chat'], ['embeddings', 'Embeddings'], ['rerank', 'Rerank']];
const NUMBERS = [['temperature', 'Temperature', { step: 0.1, min: 0, max: 2, placeholder: 'model default' }], ['top_p', 'Top p', { step: 0.05, min: 0, max: 1, placeholder: 'model default' }], ['max_tokens', 'Maximum tokens', { step: 1, min: 1, placeholder: '512' }], ['seed', 'Seed', { step: 1, placeholder: 'random' }]];

export function Playground() {
  const { query } = route.use(), isUser = session.use(it => it.who?.role === 'user');
  return isUser ? html`<${OfUser} query=${query} />` : html`<${Board} query=${query} />`;
}

function OfUser({ query }) {
  const [me] = useMe(), models = me?.models;
  return html`<${Board} query=${query} models=${models ?? []} />`;
}

function Board({ query, models: given }) {
  const pool = live.use(it => it.models), models = given ?? pool, state = conversation.use();
  const { text, system, fields, talks, documents, running } = state, count = running.size, box = useRef(null);
  // Models in the URL take precedence over the conversation kept in the tab.
  const isGiven = query.models !== undefined || query.mode !== undefined;
  const chosen = (isGiven ? (query.models ?? '').split(',').filter(Boolean) : state.models ?? []).slice(0, MOST), isHidden = isGiven ? query.hidden === '1' : state.isHidden;
  const wanted = isGiven ? query.mode : state.mode, mode = MODES.some(([name]) => name === wanted) ? wanted : 'chat';
  const set = change => {
    const next = { models: chosen, mode, isHidden, ...change };
    conversation.set(next);
    replace('playground', { models: next.models.join(','), mode: next.mode === 'chat' ? '' : next.mode, hidden: next.isHidden ? '1' : '' });
  };
  const first = isGiven || state.models ? null : likely(models);
  useEffect(() => {
    if (isGiven) conversation.set({ models: chosen, mode, isHidden });
    else if (state.models?.length || mode !== 'chat') set({});
    else if (first) set({ models: [first] });
  }, [query.models, query.mode, query.hidden, first]);
  const comparison = comparisonOf(chosen, isHidden), areNamed = !comparison.isHidden || comparison.vote !== null, isTalk = mode === 'chat';
  const choose = model => { if (!chosen.includes(model)) set({ models: [...chosen, model].slice(-MOST) }); box.current?.focus(); };
  const options = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== '').map(([name, value]) => [name, Number(value)]));
  if (options.max_tokens === undefined) options.max_tokens = 512;
  const words = useSendWords(isTalk ? chosen : [], models, comparison.isHidden, Boolean(text.trim()));
  const send = async () => {
    const prompt = text.trim();
    if (!prompt || !chosen.length || conversation.get().running.size) return;
    conversation.set({ text: '' });
    if (comparison.vote) {
      // Earlier turns would reveal the names.
      conversation.set({ comparison: newComparison(chosen, isHidden), ...(isHidden && { talks: {} }) });
    }
    await Promise.all(chosen.map(model => ask(model, { prompt, system, options })));
    box.current?.focus();
  };
  const why = whyNoVote(chosen.map(model => talks[model]));
  const onKey = event => { if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); send(); } };
  const choice = html`<${ModelChoice} clears label=${chosen.length && isTalk ? 'Add a model to compare' : 'Choose a model'} models=${models} onChange=${it => isTalk ? choose(it) : set({ models: [it] })} value=${isTalk ? undefined : chosen[0]} />`;
  const isEmpty = isTalk && chosen.length === 0;
  return html`<${Head} title="Playground"><${Choice} label="Kind of request" value=${mode} of=${MODES} onChange=${it => set({ mode: it })} />${!isEmpty && choice}<//>
    ${!isTalk ? html`<${Vectors} key=${mode} mode=${mode} model=${chosen[0]} documents=${documents} setDocuments=${value => conversation.set({ documents: value })} />` : isEmpty ? html`<${Empty} icon="playground" title="Choose a model to talk to">Up to ${MOST} answer side by side. A model that is not loaded is loaded first, as for any other request.<//><div class="empty-choice">${choice}</div>` : html`
    <div class="talks" style=${{ '--count': chosen.length }}>${comparison.order.map((model, place) => html`<${Talk} key=${model} model=${model} hiddenAs=${areNamed ? null : letter(place)} state=${models.find(it => it.model === model)?.state} talk=${talks[model] ?? []} isRunning=${running.has(model)} onStop=${() => running.get(model)?.abort()}
      onClose=${() => { running.get(model)?.abort(); set({ models: chosen.filter(it => it !== model) }); }} />`)}</div>
    ${chosen.length > 1 && (why ? html`<p class="soft vote-why">${why}</p>` : html`<${Vote} key=${comparison.name} comparison=${comparison} onVote=${vote => { conversation.set({ comparison: { ...comparison, vote } }); box.current?.focus(); }} />`)}
    ${chosen.length > 1 && html`<p class="vote-hide"><label><input type="checkbox" checked=${isHidden} disabled=${count > 0} onChange=${event => { conversation.set({ talks: {} }); set({ isHidden: event.currentTarget.checked }); }} /> Hide names until you vote</label> <span class="soft">The answers are then shown in random order.</span></p>`}
    <div class="composer"><textarea ref=${box} rows="3" aria-label="Message" placeholder="Ask something. Enter sends, Shift+Enter adds a new line." value=${text} onInput=${event => conversation.set({ text: event.currentTarget.value })} onKeyDown=${onKey}></textarea>
      <div class="composer-side">${count > 0 ? html`<${Button} icon="stop" onClick=${() => { for (const it of running.values()) it.abort(); }}>Stop<//>` : html`<${Button} kind="main" disabled=${!text.trim()} onClick=${send}>${words}<//>`}<${Button} disabled=${count > 0 || !Object.keys(talks).length} onClick=${() => conversation.set({ comparison: newComparison(chosen, isHidden), talks: {} })}>Start over<//></div></div>
    <details class="plan-more"><summary>Parameters</summary><div class="fields">${NUMBERS.map(([name, word, more]) => html`<${Field} key=${name} label=${word} id=${`play-${name}`}><input id=${`play-${name}`} type="number" value=${fields[name]} onInput=${event => conversation.set({ fields: { ...conversation.get().fields, [name]: event.currentTarget.value } })} ...${more} /><//>`)}</div>
      <${Field} label="System message" id="play-system"><textarea id="play-system" rows="2" value=${system} onInput=${event => conversation.set({ system: event.currentTarget.value })}></textarea><//></details>`}`;
}

/** Sends one turn and follows the response, even while another screen is shown. */
async function ask(model, given) {
  const abort = new AbortController(), begun = performance.now(), body = requestOf(model, conversation.get().talks[model] ?? [], given);
  const isForgotten = () => abort.signal.reason === 'forgotten';
  conversation.set(({ running }) => ({ running: new Map(running).set(model, abort) }));
  const turn = { ...given, begun, text: '', reasoning: '', note: 'Sending', first: null, took: null, tokens: null, failure: null, finish: null };
  let drawing = 0;
  const show = () => {
    drawing = 0;
    if (isForgotten()) return;
    conversation.set(({ talks }) => { const list = talks[model] ?? []; return { talks: { ...talks, [model]: list.at(-1)?.begun === begun ? [...list.slice(0, -1), { ...turn }] : [...list, { ...turn }] } }; });
  };
  const soon = () => { drawing ||= requestAnimationFrame(show); };
  show();
  try {
    const response = await fetch(`${BASE}/v1/chat/completions`, { method: 'POST', headers: headers('POST', { 'Content-Type': 'application/json', Accept: 'text/event-stream' }), body: JSON.stringify(body), signal: abort.signal, cache: 'no-store', credentials: 'same-origin' });
    if (!response.ok) throw await failureOf(response);
    await readStream(response, {
      comment(words) {
        if (turn.first !== null || !words.startsWith('waiting')) return;
        const facts = Object.fromEntries([...words.matchAll(/(\w+)=(\S+)/g)].map(it => [it[1], it[2]]));
        turn.note = ['Waits', facts.stage, facts.percent && `${facts.percent} %`, Number(facts.position) > 0 && `place ${facts.position}`, Number(facts.expected_seconds) > 0 && `about ${span(facts.expected_seconds * 1000)} left`].filter(Boolean).join(', ');
        soon();
      },
      event(name, data) {
        if (data === '[DONE]') return undefined;
        const chunk = JSON.parse(data);
        if (chunk.error) { turn.failure = chunk.error.message ?? 'The stream ended with an error.'; return undefined; }
        const choice = chunk.choices?.[0], delta = choice?.delta ?? {};
        const part = delta.content ?? '', thought = delta.reasoning_content ?? delta.reasoning ?? '';
        if (part || thought) turn.first ??= performance.now() - begun;
        turn.text += part;
        turn.reasoning += thought;
        turn.finish = choice?.finish_reason ?? turn.finish;
        turn.tokens = chunk.usage?.completion_tokens ?? turn.tokens;
        soon();
        return undefined;
      },
    });
  } catch (error) { turn.failure = abort.signal.aborted ? null : error.message; turn.isStopped = abort.signal.aborted; }
  cancelAnimationFrame(drawing);
  turn.took = performance.now() - begun;
  show();
  conversation.set(({ running }) => { const rest = new Map(running); if (rest.get(model) === abort) rest.delete(model); return { running: rest }; });
}

function Talk({ model, hiddenAs, state, talk, isRunning, onStop, onClose }) {
  const end = useRef(null), last = talk.at(-1);
  useEffect(() => { const it = end.current?.parentElement; if (it && it.scrollHeight - it.scrollTop - it.clientHeight < 160) it.scrollTop = it.scrollHeight; }, [talk]);
  const copy = async (of, word) => { if (await copyText(of(requestOf(model, talk.slice(0, -1), last)))) tell(`${word} is copied`, { more: 'Put your key into the environment variable MODEL_POOL_KEY.' }); };
  const button = (of, words, word) => html`<button type="button" class="text-button" title="The last request, as it was sent" onClick=${() => copy(of, word)}>${words}</button>`;
  return html`<section class="talk" style=${hiddenAs ? undefined : ofModel(model)} aria-label=${hiddenAs ?? `Talk with ${short(model, 60)}`}><header><span class="grow clip">${hiddenAs ?? html`<${Name} of=${model} most=${50} />`}</span>${!hiddenAs && html`${state && html`<${State} of=${state} />`}<${IconButton} icon="close" label="Close" onClick=${onClose} />`}</header>
    <div class="talk-turns" role="log" aria-live="polite" aria-busy=${String(isRunning)} tabindex="0" aria-label="Answers">${talk.map(turn => html`<div class="turn" key=${turn.begun}><p class="turn-prompt">${turn.prompt}</p>${turn.reasoning && html`<details class="turn-reasoning"><summary>Reasoning</summary><p>${clean(turn.reasoning)}</p></details>`}
      ${turn.text ? html`<p class="turn-text">${clean(turn.text)}</p>` : turn.took === null && html`<p class="soft"><span class="spinner inline" aria-hidden="true"></span> ${clean(turn.note)}</p>`}${turn.failure && html`<p class="bad-words">${clean(turn.failure)}</p>`}
      ${turn.took !== null && !hiddenAs && html`<p class="turn-facts figure">${facts(turn)}</p>`}</div>`)}<span ref=${end}></span></div>
    ${(isRunning || !hiddenAs && last) && html`<footer>${!hiddenAs && last && html`${button(curl, 'Copy as curl', 'The curl command')}${button(python, 'Copy as Python', 'The Python program')}`}<span class="grow"></span>${isRunning && html`<button type="button" class="text-button" onClick=${onStop}>Stop</button>`}</footer>`}</section>`;
}

function facts(turn) {
  const speed = turn.tokens && turn.first !== null && turn.took > turn.first ? `${(Math.max(0, turn.tokens - 1) / (turn.took - turn.first) * 1000).toFixed(1)} tokens/s` : '';
  return [turn.isStopped && 'stopped', turn.first !== null && `first token ${span(turn.first)}`, speed, turn.tokens && `${turn.tokens} tokens`, span(turn.took), turn.finish === 'length' && 'cut at max_tokens'].filter(Boolean).join(' · ');
}

const shell = text => `'${text.replaceAll("'", "'\\''")}'`;
const curl = body => `curl -N ${shell(`${BASE}/v1/chat/completions`)} \\\n  -H 'Content-Type: application/json' \\\n  -H "Authorization: Bearer $MODEL_POOL_KEY" \\\n  -d ${shell(JSON.stringify(body, null, 2))}\n`;
/** Converts JSON to Python, which differs in three literals outside of strings. */
const literal = value => JSON.stringify(value, null, 4).replace(/"(?:[^"\\]|\\.)*"|\b(true|false|null)\b/g, (all, word) => word ? { true: 'True', false: 'False', null: 'None' }[word] : all).replaceAll('\n', '\n    ');
const python = body => `# pip install openai\nimport os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${JSON.stringify(`${BASE}/v1`)}, api_key=os.environ["MODEL_POOL_KEY"])\nstream = client.chat.completions.create(\n${Object.entries(body).map(([name, value]) => `    ${name}=${literal(value)},\n`).join('')})\nfor chunk in stream:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)\n`;

/** Compares texts, one per line, with each other or with a question. */
function Vectors({ mode, model, documents, setDocuments }) {
  const [question, setQuestion] = useState(''), [answer, setAnswer] = useState(null), [failure, setFailure] = useState(null), [busy, setBusy] = useState(false);
  const lines = useMemo(() => documents.split('\n').map(it => it.trim()).filter(Boolean).slice(0, 50), [documents]);
  const run = async () => {
    setBusy(true);
    setFailure(null);
    const begun = performance.now();
    try {
      const body = mode === 'rerank' ? { model, query: question, documents: lines } : { model, input: lines };
      const response = await fetch(`${BASE}/v1/${mode}`, { method: 'POST', headers: headers('POST', { 'Content-Type': 'application/json', Accept: 'application/json' }), body: JSON.stringify(body), credentials: 'same-origin' });
      if (!response.ok) throw await failureOf(response);
      const it = await response.json();
      setAnswer({ took: performance.now() - begun, lines, ranks: mode === 'rerank' ? it.results.map(one => [one.relevance_score, lines[one.index]]) : null, vectors: mode === 'embeddings' ? it.data.map(one => one.embedding) : null });
    } catch (error) { setFailure(error); setAnswer(null); }
    setBusy(false);
  };
  const near = (one, other) => { let dot = 0, a = 0, b = 0; for (let nth = 0; nth < one.length; nth += 1) { dot += one[nth] * other[nth]; a += one[nth] ** 2; b += other[nth] ** 2; } return dot / Math.sqrt(a * b || 1); };
  return html`<div class="columns-2"><section class="lines-card"><h2>${mode === 'rerank' ? 'A question and possible answers' : 'Texts to compare'}</h2>${mode === 'rerank' && html`<${Field} label="Question" id="rerank-question"><input id="rerank-question" value=${question} onInput=${event => setQuestion(event.currentTarget.value)} /><//>`}
      <${Field} label="Texts, one per line" id="vector-texts" help="At most 50."><textarea id="vector-texts" rows="9" value=${documents} onInput=${event => setDocuments(event.currentTarget.value)}></textarea><//><p class="panel-actions"><${Button} kind="main" busy=${busy} disabled=${!model || !lines.length || mode === 'rerank' && !question.trim()} onClick=${run}>${mode === 'rerank' ? 'Rank' : 'Embed'}<//>${!model && html`<span class="soft">Choose a model first.</span>`}</p></section>
    <section class="lines-card"><h2>Answer</h2>${failure ? html`<p class="bad-words" role="alert">${clean(failure.message)}</p>` : !answer ? html`<p class="soft">No request yet.</p>` : answer.ranks ? html`<div class="table-frame"><table class="plain-table"><thead><tr><th class="right">Score</th><th>Text</th></tr></thead><tbody>${answer.ranks.map(([score, text], nth) => html`<tr key=${nth}><td class="right figure">${Number(score).toFixed(4)}</td><td>${short(text, 200)}</td></tr>`)}</tbody></table></div>`
      : html`<p class="soft">${answer.vectors.length} vectors of ${answer.vectors[0]?.length ?? 0} numbers. How near the texts are (cosine):</p><div class="table-frame"><table class="plain-table"><tbody>${answer.lines.slice(0, 12).map((text, row) => html`<tr key=${row}><td>${short(text, 50)}</td>${answer.vectors.slice(0, 12).map((vector, nth) => html`<td class="right figure" key=${nth} title=${short(answer.lines[nth], 80)}>${near(answer.vectors[row], vector).toFixed(2)}</td>`)}</tr>`)}</tbody></table></div>`}${answer && html`<p class="turn-facts figure">${span(answer.took)}</p>`}</section></div>`;
}
