// An engine's output: the last lines and new ones, with search and download. Lines are never interpreted as markup.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../lib/view.js';
import { follow } from '../lib/sse.js';
import { clean, count, short, timeOfDay, wholeTime } from '../lib/text.js';
import { byName, live } from '../lib/live.js';
import { link, replace, route } from '../lib/route.js';
import { Button, Empty, Head, Loading, Search } from '../parts/bits.js';
import { ModelChoice } from '../parts/model-choice.js';

const KEPT = 5000, TAIL = 1000, ROW = 19;

export function Logs() {
  const { query } = route.use();
  const models = live.use(it => it.models);
  const first = models.find(it => it.state === 'ready')?.model ?? models[0]?.model, name = query.model || first;
  return html`<${Head} title="Logs" about="The output of the engines. The pool keeps the last 1,000 lines of each engine, even after it has ended.">
      <${ModelChoice} label="Model" value=${name} onChange=${model => replace('logs', { model })} /><//>
    ${name ? html`<${Log} key=${name} name=${name} />` : html`<${Empty} icon="logs" title="No model">There is no engine output.<//>`}`;
}

function Log({ name }) {
  const [lines, setLines] = useState([]), [state, setState] = useState('reading'), [failure, setFailure] = useState(null), [find, setFind] = useState(''), [only, setOnly] = useState(false), [isFollowing, setFollowing] = useState(true), [replica, setReplica] = useState('');
  const model = byName.get(name);
  useEffect(() => {
    let batch = [], asked = 0, isFirst = true;
    const flush = () => {
      asked = 0;
      const added = batch;
      batch = [];
      setLines(before => [...before, ...added].slice(-KEPT));
    };
    const stop = follow(() => `/admin/logs?${new URLSearchParams({ model: name, follow: 'true', tail: TAIL })}`, {
      state(now, why) {
        if (now === 'open') { if (!isFirst) { batch = []; setLines([]); } isFirst = false; setState('live'); } else if (now === 'refused') { setState('refused'); setFailure(why); } else setState('lost');
      },
      event(kind, text) {
        const line = JSON.parse(text);
        batch.push({ ...line, line: clean(line.line) });
        asked ||= setTimeout(flush, 50);
      },
      comment(text) { if (text.includes('missed')) { batch.push({ at: new Date().toISOString(), replica: '', stream: 'note', line: text }); asked ||= setTimeout(flush, 50); } },
    });
    return () => { stop(); clearTimeout(asked); };
  }, [name]);
  const words = find.toLowerCase();
  const replicas = useMemo(() => [...new Set(lines.map(it => it.replica).filter(Boolean))], [lines]);
  const matched = useMemo(() => lines.filter(it => (!words || !only || it.line.toLowerCase().includes(words)) && (!replica || it.replica === replica)), [lines, words, only, replica]);
  const hits = useMemo(() => words ? lines.filter(it => it.line.toLowerCase().includes(words)).length : 0, [lines, words]);
  const save = () => {
    const text = matched.map(it => `${it.at} ${it.replica} ${it.stream} ${it.line}`).join('\n') + '\n', address = URL.createObjectURL(new Blob([text], { type: 'text/plain' }));
    const anchor = document.createElement('a');
    anchor.href = address;
    anchor.download = `${name.replace(/[^\w.-]+/g, '_').slice(0, 100)}.log`;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  const words_of = { live: 'following', lost: 'connection lost, reconnecting', reading: 'reading', refused: 'refused' };
  return html`<div class="filters log-tools"><${Search} label="Find in the log" value=${find} onInput=${setFind} id="log-search" />
      ${words && html`<label class="check"><input type="checkbox" checked=${only} onChange=${event => setOnly(event.currentTarget.checked)} /><span>only these ${hits}</span></label>`}
      ${replicas.length > 1 && html`<label class="select"><span class="quiet">Replica</span><select value=${replica} onChange=${event => setReplica(event.currentTarget.value)}><option value="">Every replica</option>${replicas.map(it => html`<option key=${it} value=${it}>${it}</option>`)}</select></label>`}
      <span class="grow"></span><span class="soft live-sign" data-state=${state}>${words_of[state]}, ${count(lines.length, 'line')}</span>
      <${Button} icon="down" disabled=${isFollowing} onClick=${() => setFollowing(true)}>Jump to the end<//><${Button} icon="download" disabled=${!matched.length} onClick=${save}>Download<//></div>
    ${failure ? html`<p class="notice">${clean(failure.message)}</p>` : lines.length === 0 ? html`<div class="log-frame">${state === 'reading' ? html`<${Loading} />` : html`<${Empty} icon="logs" title="No output yet">${model?.replicas.length ? 'The engine is running and has not printed anything.' : html`${short(name, 60)} has not run since the pool began. Its lines appear here when it is loaded.`}<//>`}</div>`
      : html`<${Lines} lines=${matched} words=${words} isFollowing=${isFollowing} setFollowing=${setFollowing} />`}
    <p class="soft"><a href=${link('models', { model: name })}>About this model</a></p>`;
}

/** Renders only the visible lines. */
function Lines({ lines, words, isFollowing, setFollowing }) {
  const frame = useRef(null), [range, setRange] = useState([0, 100]), wide = useMemo(() => Math.min(2000, Math.max(40, ...lines.map(it => it.line.length))), [lines]);
  const look = () => {
    const { scrollTop, clientHeight } = frame.current, first = Math.max(0, Math.floor(scrollTop / ROW) - 20);
    setRange([first, first + Math.ceil(clientHeight / ROW) + 40]);
  };
  useLayoutEffect(() => {
    if (isFollowing) frame.current.scrollTop = frame.current.scrollHeight;
    look();
  }, [lines, isFollowing]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = frame.current;
    setFollowing(scrollHeight - scrollTop - clientHeight < ROW * 2);
    look();
  };
  return html`<div class="log-frame" ref=${frame} onScroll=${onScroll} tabindex="0" role="log" aria-label="The engine's output" aria-live="off"><div class="log-lines" style=${{ height: `${lines.length * ROW}px`, minWidth: `calc(${wide}ch + 170px)` }}>${lines.slice(...range).map((it, nth) => {
    const top = (range[0] + nth) * ROW;
    return html`<div class="log-line" key=${range[0] + nth} data-stream=${it.stream} style=${{ top: `${top}px` }}><time title=${wholeTime(it.at)}>${timeOfDay(it.at)}</time><span class="log-replica">${it.replica}</span><span class="log-text"><${Marked} text=${it.line.slice(0, 5000)} words=${words} /></span></div>`;
  })}</div></div>`;
}

function Marked({ text, words }) {
  if (!words) return text;
  const low = text.toLowerCase(), parts = [];
  let from = 0;
  for (let at = low.indexOf(words); at >= 0 && parts.length < 200; at = low.indexOf(words, from)) {
    parts.push(text.slice(from, at), html`<mark key=${at}>${text.slice(at, at + words.length)}</mark>`);
    from = at + words.length;
  }
  return [...parts, text.slice(from)];
}
