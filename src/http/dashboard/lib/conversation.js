// The playground's conversation. It lives as long as the tab: answers go on while another screen is shown, and a reload brings back
// what fits into the tab's storage. Another person who signs in does not find it.
import { session } from './api.js';
import { createStore } from './store.js';

const NAME = 'model-pool.playground';
/** Characters of the stored copy. A longer conversation does not survive a reload. */
const STORED_MAX = 1_000_000;
const WRITE_MS = 500;

/** `models` is null until somebody has chosen some. `talks`: turns by model. `running`: what aborts each request, by model. */
const fresh = () => ({ models: null, mode: '', isHidden: false, text: '', system: '', fields: { temperature: '', top_p: '', max_tokens: '', seed: '' }, talks: {}, documents: '', comparison: null, running: new Map() });

export const conversation = createStore(fresh());

let owner = null, timer = 0;

/** A turn whose request is still under way cannot go on after a reload. */
const ended = turn => turn.took === null ? { ...turn, took: 0, isStopped: true } : turn;

function stored(of) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(NAME) ?? 'null');
    if (kept?.owner !== of) return {};
    const talks = Object.fromEntries(Object.entries(kept.state.talks ?? {}).map(([model, turns]) => [model, turns.map(ended)]));
    return { ...kept.state, talks };
  } catch { return {}; }
}

function write() {
  timer = 0;
  const { running, ...state } = conversation.get(), text = JSON.stringify({ owner, state });
  try {
    if (text.length > STORED_MAX) sessionStorage.removeItem(NAME);
    else sessionStorage.setItem(NAME, text);
  } catch { /* It lives as long as the page. */ }
}

function follow() {
  const { state, who } = session.get();
  if (state === 'unknown' || state === 'ended') return;
  const now = state === 'in' ? `${who?.role} ${who?.key ?? who?.name ?? ''}` : null;
  if (now === owner) return;
  for (const abort of conversation.get().running.values()) abort.abort();
  // Signing out forgets it; a page that has just begun looks for what its tab had.
  if (now === null) { try { sessionStorage.removeItem(NAME); } catch { /* Nothing was stored. */ } }
  owner = now;
  conversation.set({ ...fresh(), ...(now !== null && stored(now)) });
}

session.subscribe(follow);
conversation.subscribe(() => { if (owner !== null) timer ||= setTimeout(write, WRITE_MS); });
addEventListener('pagehide', () => { if (timer) { clearTimeout(timer); write(); } });
follow();

/** The body of a request: of the turn `nth` if the model has had it, or of a next one with this prompt. */
export function requestOf(model, turns, { prompt, system, options }) {
  const before = turns.filter(turn => !turn.failure && turn.text).flatMap(turn => [{ role: 'user', content: turn.prompt }, { role: 'assistant', content: turn.text }]);
  const messages = [...(system.trim() ? [{ role: 'system', content: system }] : []), ...before, { role: 'user', content: prompt }];
  return { model, messages, stream: true, stream_options: { include_usage: true }, ...options };
}
