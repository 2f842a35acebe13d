// The playground's conversation, kept per tab: responses continue while another screen is shown, and a reload restores
// what fits into the tab's storage. It is dropped when another person signs in.
import { session } from './api.js';
import { createStore } from './store.js';

const NAME = 'model-pool.playground';
/** Largest stored copy, in characters. A longer conversation does not survive a reload. */
const STORED_MAX = 1_000_000;
const WRITE_MS = 500;

/** `models` is null until models were chosen. `talks`: turns by model. `running`: abort controllers of requests, by model. */
const fresh = () => ({ models: null, mode: '', isHidden: false, text: '', system: '', fields: { temperature: '', top_p: '', max_tokens: '', seed: '' }, talks: {}, documents: '', comparison: null, running: new Map() });

export const conversation = createStore(fresh());

let owner = null, timer = 0;

/** A request in progress does not survive a reload. */
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
  // Signing out clears it; a new page restores it from the tab.
  if (now === null) { try { sessionStorage.removeItem(NAME); } catch { /* Nothing was stored. */ } }
  owner = now;
  conversation.set({ ...fresh(), ...(now !== null && stored(now)) });
}

session.subscribe(follow);
conversation.subscribe(() => { if (owner !== null) timer ||= setTimeout(write, WRITE_MS); });
addEventListener('pagehide', () => { if (timer) { clearTimeout(timer); write(); } });
follow();

/** The body of a request: for turn `nth` if it exists, or for a new turn with this prompt. */
export function requestOf(model, turns, { prompt, system, options }) {
  const before = turns.filter(turn => !turn.failure && turn.text).flatMap(turn => [{ role: 'user', content: turn.prompt }, { role: 'assistant', content: turn.text }]);
  const messages = [...(system.trim() ? [{ role: 'system', content: system }] : []), ...before, { role: 'user', content: prompt }];
  return { model, messages, stream: true, stream_options: { include_usage: true }, ...options };
}
