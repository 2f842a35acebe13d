// Requests to the pool. The session is a cookie that scripts cannot read; changes carry a header that no other site can send.
import { createStore } from './store.js';

/** The base URL of the pool, including a proxy's prefix. */
export const BASE = new URL('.', location.href).href.replace(/\/$/, '');
const TIMEOUT_MS = 20_000;

/** `who` is null until known; `state`: unknown, out, in, ended. */
export const session = createStore({ state: 'unknown', who: null, failure: null });

export class Failure extends Error {
  constructor({ status = 0, code = null, message, param = null, plan = null, retry = null }) {
    super(message);
    Object.assign(this, { status, code, param, plan, retry });
  }
}

const unreachable = () => new Failure({ message: `No response from ${location.host}. The connection or the service is down.` });

export async function failureOf(response) {
  let body = {};
  try { body = await response.json(); } catch { /* A proxy answered without JSON. */ }
  const { error = {}, plan = null } = body ?? {};
  return new Failure({
    status: response.status, code: error.code, param: error.param, plan,
    message: error.message || `The server, or a proxy in front of it, returned status ${response.status}.`,
    retry: Number(response.headers.get('retry-after')) || null,
  });
}

export function headers(method, more = {}) {
  return { ...(method !== 'GET' && { 'x-model-pool-csrf': '1' }), ...more };
}

/** Returns the JSON of a response or throws a `Failure`. With `timeout: 0` an order may take any time. */
export async function request(method, path, { body, query, timeout = TIMEOUT_MS, signal, asText = false } = {}) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const address = BASE + path + (given.length ? '?' + new URLSearchParams(given) : '');
  const signals = [signal, timeout && AbortSignal.timeout(timeout)].filter(Boolean);
  let response;
  try {
    response = await fetch(address, {
      method, cache: 'no-store', credentials: 'same-origin',
      headers: headers(method, { Accept: asText ? '*/*' : 'application/json', ...(body !== undefined && { 'Content-Type': 'application/json' }) }),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signals.length ? AbortSignal.any(signals) : undefined,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  }
  if (!response.ok) {
    const failure = await failureOf(response);
    if (response.status === 401 && path !== '/session') ended();
    throw failure;
  }
  if (response.status === 204) return null;
  if (asText) return response.text();
  try { return await response.json(); } catch { throw unreachable(); }
}

export const get = (path, query, more) => request('GET', path, { query, ...more });
export const getText = (path, query) => request('GET', path, { query, asText: true });
export const post = (path, body = {}, more) => request('POST', path, { body, ...more });

/** The session is no longer valid. */
export function ended() {
  if (session.get().state === 'in') session.set({ state: 'ended' });
}

const RENEW_MS = 10 * 60_000;

// Administrators of groups see the pages of users.
const shown = who => who.role === 'group-admin' ? { ...who, role: 'user' } : who;

/** Without a required key, visitors start signed out: administrators sign in, and others may continue without a key. */
export async function whoAmI() {
  try {
    const who = shown(await get('/session'));
    session.set(who.by === 'nothing' && who.role === 'user' ? { state: 'out', who, failure: null } : { state: 'in', who, failure: null });
  } catch (failure) {
    const out = failure.status === 401 || failure.status === 403;
    session.set({ state: out ? 'out' : 'unknown', failure: out ? null : failure });
  }
}

export const goOnWithoutKey = () => session.set({ state: 'in' });

// The server renews the cookie's secret on this request, and reports when the session has ended.
setInterval(async () => {
  if (session.get().state !== 'in' || document.hidden) return;
  try { session.set({ who: shown(await get('/session')) }); } catch (failure) { if (failure.status === 401) ended(); }
}, RENEW_MS);

export async function signIn(key) {
  const who = shown(await post('/session', { key }));
  session.set({ state: 'in', who, failure: null });
}

export async function signOut() {
  try { await request('DELETE', '/session'); } catch { /* It is forgotten here in any case. */ }
  session.set({ state: 'out', who: null });
}

export const mayChange = () => session.get().who?.role === 'admin';
export const useMayChange = () => session.use(it => it.who?.role === 'admin');
export const READ_ONLY = 'Your key has the role viewer: you can see everything, but change nothing.';
