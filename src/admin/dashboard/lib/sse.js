// Reads server-sent events. Unlike EventSource, it exposes status codes and comments, and detects silent streams.
// Without TLS, browsers open at most six connections per server for all tabs, so a hidden tab closes its connection.
import { BASE, ended, failureOf, headers } from './api.js';

const SILENT_MS = 30_000;
/** Time after which a hidden tab closes its connection. Longer than stepping through tabs takes. */
const HIDDEN_MS = 3_000;

/**
 * Reads one stream to its end. `on.open()`, `on.event(name, data, id)`, `on.comment(text)`; data is the text.
 * Resolves when the server ends it, rejects when it breaks.
 */
export async function readStream(response, on, touch = () => {}) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = '', name = '', id = null, data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    touch();
    const lines = (rest + decoder.decode(value, { stream: true })).split('\n');
    rest = lines.pop();
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (data.length && on.event(name || 'message', data.join('\n'), id) === false) { reader.cancel().catch(() => {}); return; }
        name = ''; data = [];
      } else if (line[0] === ':') {
        on.comment?.(line.slice(1).trim());
      } else {
        const at = line.indexOf(':');
        const field = at < 0 ? line : line.slice(0, at);
        const text = at < 0 ? '' : line.slice(line[at + 1] === ' ' ? at + 2 : at + 1);
        if (field === 'data') data.push(text);
        else if (field === 'event') name = text;
        else if (field === 'id') id = text;
      }
    }
  }
}

/**
 * Follows a stream and opens it again when it breaks. `path` may be a function, so that it can go on where it was.
 * `on.state('open' | 'lost' | 'paused' | 'refused', failure)` says how it is. Returns a function that ends it.
 */
export function follow(path, on) {
  let over = false, tries = 0, abort = null, timer = 0, silence = 0, hiding = 0, isPaused = false;
  const again = failure => {
    if (over || isPaused) return;
    on.state?.('lost', failure);
    tries += 1;
    const wait = Math.min(10_000, 400 * 2 ** Math.min(tries, 5)) * (0.75 + Math.random() / 2);
    timer = setTimeout(open, wait);
  };
  const listen = () => {
    clearTimeout(silence);
    silence = setTimeout(() => abort?.abort(), SILENT_MS);
  };
  async function open() {
    clearTimeout(timer);
    timer = 0;
    if (over) return;
    if (document.hidden) { pause(); return; }
    abort?.abort();
    const mine = new AbortController();
    abort = mine;
    listen();
    let failure = null;
    try {
      const address = BASE + (typeof path === 'function' ? path() : path);
      const response = await fetch(address, { headers: headers('GET', { Accept: 'text/event-stream' }), cache: 'no-store', credentials: 'same-origin', signal: mine.signal });
      if (response.ok) {
        tries = 0;
        on.state?.('open');
        await readStream(response, on, listen);
      } else {
        failure = await failureOf(response);
        if (response.status === 401) ended();
        if (response.status >= 400 && response.status < 500 && response.status !== 429 && response.status !== 408) {
          clearTimeout(silence);
          stop();
          on.state?.('refused', failure);
          return;
        }
      }
    } catch { /* It broke, or it was silent for too long. */ }
    // A tab that was hidden and shown again has another connection by now.
    if (abort !== mine) return;
    clearTimeout(silence);
    again(failure);
  }
  const hurry = () => { if (!over && !isPaused && timer) { clearTimeout(timer); tries = 0; open(); } };
  const cut = () => abort?.abort();
  function pause() {
    isPaused = true;
    clearTimeout(timer);
    clearTimeout(silence);
    on.state?.('paused');
    abort?.abort();
    abort = null;
  }
  const look = () => {
    clearTimeout(hiding);
    if (document.hidden) {
      if (!isPaused) hiding = setTimeout(pause, HIDDEN_MS);
    } else if (isPaused) {
      isPaused = false;
      tries = 0;
      open();
    }
  };
  function stop() {
    over = true;
    clearTimeout(timer);
    clearTimeout(silence);
    clearTimeout(hiding);
    removeEventListener('online', hurry);
    removeEventListener('offline', cut);
    document.removeEventListener('visibilitychange', look);
    abort?.abort();
  }
  addEventListener('online', hurry);
  addEventListener('offline', cut);
  document.addEventListener('visibilitychange', look);
  open();
  return stop;
}
