// Talking to models: one or several side by side, as a stream, with what it cost in time; and the same as a program.
import { html, useEffect, useMemo, useRef, useState } from '../lib/view.js';
import { BASE, failureOf, headers, session } from '../lib/api.js';
import { readStream } from '../lib/sse.js';
import { live } from '../lib/live.js';
import { clean, short, span } from '../lib/text.js';
import { letter, newComparison } from '../lib/votes.js';
import { replace, route } from '../lib/route.js';
import { Button, Choice, Empty, Head, IconButton, Name, State, copyText, ofModel } from '../parts/bits.js';
import { Field } from '../parts/dialog.js';
import { ModelChoice } from '../parts/model-choice.js';
import { tell } from '../parts/messages.js';
import { Vote } from '../parts/vote.js';
import { useOwnModels } from './home.js';

const MOST = 4;
/** All have answered the last question to its end. */
const areComplete = talks => talks.every(talk => talk?.length && talk.at(-1).took !== null && !talk.at(-1).failure && !talk.at(-1).isStopped && talk.at(-1).text) && new Set(talks.map(talk => talk.length)).size === 1;
const MODES = [['chat', 'Chat'], ['embeddings', 'Embeddings'], ['rerank', 'Rerank']];
const NUMBERS = [['temperature', 'Temperature', { step: 0.1, min: 0, max: 2, placeholder: 'by the model' }], ['top_p', 'Top p', { step: 0.05, min: 0, max: 1, placeholder: 'by the model' }], ['max_tokens', 'Most tokens', { step: 1, min: 1, placeholder: '512' }], ['seed', 'Seed', { step: 1, placeholder: 'random' }]];

export function Playground() {
  const { query } = route.use(), isUser = session.use(it => it.who?.role === 'user');
  return isUser ? html`<${OfUser} query=${query} />` : html`<${Board} query=${query} />`;
}

function OfUser({ query }) {
  const [models] = useOwnModels();
  return html`<${Board} query=${query} models=${models ?? []} />`;
}

function Board({ query, models: given }) {
  const pool = live.use(it => it.models), models = given ?? pool;
  const chosen = (query.models ?? '').split(',').filter(Boolean).slice(0, MOST), mode = MODES.some(([name]) => name === query.mode) ? query.mode : 'chat';
  const [text, setText] = useState(''), [system, setSystem] = useState(''), [fields, setFields] = useState({ temperature: '', top_p: '', max_tokens: '', seed: '' }), [talks, setTalks] = useState({}), [documents, setDocuments] = useState('');
  const isHidden = query.hidden === '1', asked = useRef(null), [, setNth] = useState(0);
  // Another choice of models is another comparison.
  if (asked.current?.of !== chosen.join('\n') || asked.current.isHidden !== isHidden && !asked.current.vote) asked.current = newComparison(chosen, isHidden);
  const comparison = asked.current, areNamed = !comparison.isHidden || comparison.vote !== null;
  const running = useRef(new Map()), [count, setCount] = useState(0), box = useRef(null);
  useEffect(() => () => { for (const abort of running.current.values()) abort.abort(); }, []);
  const set = change => replace('playground', { ...query, ...change });
  const choose = model => { if (!chosen.includes(model)) set({ models: [...chosen, model].slice(-MOST).join(',') }); box.current?.focus(); };
  const options = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== '').map(([name, value]) => [name, Number(value)]));
  if (options.max_tokens === undefined) options.max_tokens = 512;
  const messagesFor = (model, prompt, before = talks) => [...(system.trim() ? [{ role: 'system', content: system }] : []), ...(before[model] ?? []).flatMap(turn => turn.failure ? [] : [{ role: 'user', content: turn.prompt }, { role: 'assistant', content: turn.text }]), { role: 'user', content: prompt }];
  const send = async () => {
    const prompt = text.trim();
    if (!prompt || !chosen.length || running.current.size) return;
    setText('');
    let before = talks;
    if (comparison.vote) {
      asked.current = newComparison(chosen, isHidden);
      // What was said before would tell who is who.
      if (isHidden) { before = {}; setTalks(before); }
    }
    await Promise.all(chosen.map(model => ask(model, prompt, before)));
    box.current?.focus();
  };
  const ask = async (model, prompt, before) => {
    const abort = new AbortController(), begun = performance.now(), body = { model, messages: messagesFor(model, prompt, before), stream: true, stream_options: { include_usage: true }, ...options };
    running.current.set(model, abort);
    setCount(running.current.size);
    const turn = { prompt, text: '', reasoning: '', note: 'Asking', first: null, took: null, tokens: null, failure: null, finish: null };
    let asked = 0;
    const show = () => { asked = 0; setTalks(before => { const list = before[model] ?? [], last = list.at(-1); return { ...before, [model]: last?.begun === begun ? [...list.slice(0, -1), { ...turn, begun }] : [...list, { ...turn, begun }] }; }); };
    const soon = () => { asked ||= requestAnimationFrame(show); };
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
    cancelAnimationFrame(asked);
    turn.took = performance.now() - begun;
    running.current.delete(model);
    setCount(running.current.size);
    show();
  };
  const onKey = event => { if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); send(); } };
  return html`<${Head} title="Playground"><${Choice} label="What" value=${mode} of=${MODES} onChange=${it => set({ mode: it === 'chat' ? '' : it })} /><${ModelChoice} clears label=${chosen.length && mode === 'chat' ? 'Add a model beside' : 'Choose a model'} models=${models} onChange=${it => mode === 'chat' ? choose(it) : set({ models: it })} value=${mode === 'chat' ? undefined : chosen[0]} /><//>
    ${mode !== 'chat' ? html`<${Vectors} key=${mode} mode=${mode} model=${chosen[0]} documents=${documents} setDocuments=${setDocuments} />` : chosen.length === 0 ? html`<${Empty} icon="playground" title="Choose a model to talk to">Up to ${MOST} answer side by side. A model that is not loaded is loaded first, as for any other request.<//>` : html`
    <div class="talks" style=${{ '--count': chosen.length }}>${comparison.order.map((model, place) => html`<${Talk} key=${model} model=${model} hiddenAs=${areNamed ? null : letter(place)} state=${models.find(it => it.model === model)?.state} talk=${talks[model] ?? []} isRunning=${running.current.has(model)} onStop=${() => running.current.get(model)?.abort()}
      onClose=${() => { running.current.get(model)?.abort(); set({ models: chosen.filter(it => it !== model).join(',') }); }} request=${() => ({ model, messages: messagesFor(model, text.trim() || 'Hello'), ...options })} />`)}</div>
    ${chosen.length > 1 && areComplete(chosen.map(model => talks[model])) && html`<${Vote} key=${comparison.name} comparison=${comparison} onVote=${vote => { asked.current = { ...comparison, vote }; setNth(it => it + 1); box.current?.focus(); }} />`}
    ${chosen.length > 1 && html`<p class="vote-hide"><label><input type="checkbox" checked=${isHidden} disabled=${Boolean(count)} onChange=${event => { setTalks({}); set({ hidden: event.currentTarget.checked ? '1' : '' }); }} /> Hide names until you vote</label> <span class="soft">The answers then stand in a random order.</span></p>`}
    <div class="composer"><textarea ref=${box} rows="3" aria-label="Message" placeholder="Ask something. Enter sends, Shift and Enter makes a new line." value=${text} onInput=${event => setText(event.currentTarget.value)} onKeyDown=${onKey}></textarea>
      <div class="composer-side">${count ? html`<${Button} icon="stop" onClick=${() => { for (const it of running.current.values()) it.abort(); }}>Stop<//>` : html`<${Button} kind="main" disabled=${!text.trim()} onClick=${send}>Send${chosen.length > 1 ? ` to ${chosen.length}` : ''}<//>`}<${Button} disabled=${Boolean(count) || !Object.keys(talks).length} onClick=${() => { asked.current = newComparison(chosen, isHidden); setTalks({}); }}>Start over<//></div></div>
    <details class="plan-more"><summary>Parameters</summary><div class="fields">${NUMBERS.map(([name, word, more]) => html`<${Field} key=${name} label=${word} id=${`play-${name}`}><input id=${`play-${name}`} type="number" value=${fields[name]} onInput=${event => { const { value } = event.currentTarget; setFields(before => ({ ...before, [name]: value })); }} ...${more} /><//>`)}</div>
      <${Field} label="System message" id="play-system"><textarea id="play-system" rows="2" value=${system} onInput=${event => setSystem(event.currentTarget.value)}></textarea><//></details>`}`;
}

function Talk({ model, hiddenAs, state, talk, isRunning, onStop, onClose, request }) {
  const end = useRef(null);
  useEffect(() => { const it = end.current?.parentElement; if (it && it.scrollHeight - it.scrollTop - it.clientHeight < 160) it.scrollTop = it.scrollHeight; }, [talk]);
  const copy = async (of, word) => { if (await copyText(of(request()))) tell(`${word} is copied`); };
  return html`<section class="talk" style=${hiddenAs ? undefined : ofModel(model)} aria-label=${hiddenAs ?? `Talk with ${short(model, 60)}`}><header><span class="grow clip">${hiddenAs ?? html`<${Name} of=${model} most=${50} />`}</span>${!hiddenAs && html`${state && html`<${State} of=${state} />`}<${IconButton} icon="close" label="Close" onClick=${onClose} />`}</header>
    <div class="talk-turns" role="log" aria-live="polite" aria-busy=${String(isRunning)} tabindex="0" aria-label="Answers">${talk.map(turn => html`<div class="turn" key=${turn.begun}><p class="turn-prompt">${turn.prompt}</p>${turn.reasoning && html`<details class="turn-reasoning"><summary>Reasoning</summary><p>${clean(turn.reasoning)}</p></details>`}
      ${turn.text ? html`<p class="turn-text">${clean(turn.text)}</p>` : turn.took === null && html`<p class="soft"><span class="spinner inline" aria-hidden="true"></span> ${clean(turn.note)}</p>`}${turn.failure && html`<p class="bad-words">${clean(turn.failure)}</p>`}
      ${turn.took !== null && !hiddenAs && html`<p class="turn-facts figure">${facts(turn)}</p>`}</div>`)}<span ref=${end}></span></div>
    ${(isRunning || !hiddenAs) && html`<footer>${!hiddenAs && html`<button type="button" class="text-button" onClick=${() => copy(curl, 'The curl command')}>Copy as curl</button><button type="button" class="text-button" onClick=${() => copy(python, 'The Python program')}>Copy as Python</button>`}<span class="grow"></span>${isRunning && html`<button type="button" class="text-button" onClick=${onStop}>Stop</button>`}</footer>`}</section>`;
}

function facts(turn) {
  const speed = turn.tokens && turn.first !== null && turn.took > turn.first ? `${(Math.max(0, turn.tokens - 1) / (turn.took - turn.first) * 1000).toFixed(1)} tokens/s` : '';
  return [turn.isStopped && 'stopped', turn.first !== null && `first token ${span(turn.first)}`, speed, turn.tokens && `${turn.tokens} tokens`, span(turn.took), turn.finish === 'length' && 'cut at the greatest length'].filter(Boolean).join(' · ');
}

const shell = text => `'${text.replaceAll("'", "'\\''")}'`;
const curl = body => `curl ${shell(`${BASE}/v1/chat/completions`)} \\\n  -H 'Content-Type: application/json' \\\n  -H "Authorization: Bearer $MODEL_POOL_KEY" \\\n  -d ${shell(JSON.stringify(body, null, 2))}`;
/** JSON is Python, but for these three words outside of texts. */
const literal = value => JSON.stringify(value, null, 4).replace(/"(?:[^"\\]|\\.)*"|\b(true|false|null)\b/g, (all, word) => word ? { true: 'True', false: 'False', null: 'None' }[word] : all).replaceAll('\n', '\n    ');
const python = ({ model, messages, ...rest }) => `# pip install openai\nimport os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${JSON.stringify(`${BASE}/v1`)}, api_key=os.environ["MODEL_POOL_KEY"])\nstream = client.chat.completions.create(\n    model=${JSON.stringify(model)},\n    messages=${literal(messages)},\n${Object.entries(rest).map(([name, value]) => `    ${name}=${value},\n`).join('')}    stream=True,\n)\nfor chunk in stream:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)\n`;

/** Texts line by line: how near they are to each other, or to a question. */
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
  return html`<div class="columns-2"><section class="lines-card"><h2>${mode === 'rerank' ? 'A question and what might answer it' : 'Texts to compare'}</h2>${mode === 'rerank' && html`<${Field} label="Question" id="rerank-question"><input id="rerank-question" value=${question} onInput=${event => setQuestion(event.currentTarget.value)} /><//>`}
      <${Field} label="Texts, one a line" id="vector-texts" help="At most 50."><textarea id="vector-texts" rows="9" value=${documents} onInput=${event => setDocuments(event.currentTarget.value)}></textarea><//><p class="panel-actions"><${Button} kind="main" busy=${busy} disabled=${!model || !lines.length || mode === 'rerank' && !question.trim()} onClick=${run}>${mode === 'rerank' ? 'Rank' : 'Embed'}<//>${!model && html`<span class="soft">Choose a model first.</span>`}</p></section>
    <section class="lines-card"><h2>Answer</h2>${failure ? html`<p class="bad-words" role="alert">${clean(failure.message)}</p>` : !answer ? html`<p class="soft">Nothing is asked yet.</p>` : answer.ranks ? html`<div class="table-frame"><table class="plain-table"><thead><tr><th class="right">Score</th><th>Text</th></tr></thead><tbody>${answer.ranks.map(([score, text], nth) => html`<tr key=${nth}><td class="right figure">${Number(score).toFixed(4)}</td><td>${short(text, 200)}</td></tr>`)}</tbody></table></div>`
      : html`<p class="soft">${answer.vectors.length} vectors of ${answer.vectors[0]?.length ?? 0} numbers. How near the texts are (cosine):</p><div class="table-frame"><table class="plain-table"><tbody>${answer.lines.slice(0, 12).map((text, row) => html`<tr key=${row}><td>${short(text, 50)}</td>${answer.vectors.slice(0, 12).map((vector, nth) => html`<td class="right figure" key=${nth} title=${short(answer.lines[nth], 80)}>${near(answer.vectors[row], vector).toFixed(2)}</td>`)}</tr>`)}</tbody></table></div>`}${answer && html`<p class="turn-facts figure">${span(answer.took)}</p>`}</section></div>`;
}
