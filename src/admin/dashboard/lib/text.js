// Formats numbers and times, and sanitizes external texts.
import { settings } from './settings.js';

const KIB = 1024;
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** `36.0 GiB`. */
export function bytes(count) {
  if (count === null || count === undefined) return '—';
  let unit = 0, value = count;
  while (value >= KIB && unit < UNITS.length - 1) { value /= KIB; unit += 1; }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits)}\u00a0${UNITS[unit]}`;
}

/** The source of a model's memory requirement. */
export const sourceOf = needs => ({ unfetched: 'a guess until its weights are fetched', unseen: 'the pool does not see its memory' }[needs.source] ?? needs.source);

/** `1 replica`, `3 replicas`. */
export const count = (number, one, many = one + 's') => `${number}\u00a0${number === 1 ? one : many}`;

/** A duration: `850 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`. */
export function span(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return '—';
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}\u00a0ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)}\u00a0s`;
  const seconds = Math.round(ms / 1000);
  const [d, h, m, s] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  const parts = d ? [[d, 'd'], [h, 'h']] : h ? [[h, 'h'], [m, 'min']] : m ? [[m, 'min'], [s, 's']] : [[s, 's']];
  return parts.filter(([value], nth) => value || nth === 0).map(it => it.join('\u00a0')).join(' ');
}

/** A countdown: `7:12`, `1:04:09`, `3 d 4 h`. */
export function countdown(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  if (seconds >= 86_400) return span(seconds * 1000);
  const two = value => String(value).padStart(2, '0');
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** A duration in the configuration's format: `10m`, `1h 30m`. */
export function length(ms) {
  const seconds = Math.round(ms / 1000);
  const parts = [['d', 86_400], ['h', 3600], ['m', 60], ['s', 1]];
  let rest = seconds;
  const words = parts.flatMap(([unit, size]) => {
    const value = Math.floor(rest / size);
    rest -= value * size;
    return value ? [value + unit] : [];
  });
  return words.join(' ') || '0s';
}

let poolZone = null;
export function setPoolZone(zone) {
  try {
    poolZone = zone && zone !== 'local' ? new Intl.DateTimeFormat('en', { timeZone: zone }).resolvedOptions().timeZone : null;
  } catch {
    poolZone = null;
  }
}
export const ownZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';
export const knownPoolZone = () => poolZone;
const shownZone = () => settings.get().zone === 'pool' && poolZone ? poolZone : ownZone();

const formats = new Map();
function format(zone, options) {
  const name = zone + JSON.stringify(options);
  if (!formats.has(name)) formats.set(name, new Intl.DateTimeFormat('en-GB', { timeZone: zone, hourCycle: 'h23', ...options }));
  return formats.get(name);
}
const CLOCK = { hour: '2-digit', minute: '2-digit', second: '2-digit' };
const SHORT = { hour: '2-digit', minute: '2-digit' };
const DAY = { weekday: 'short', day: 'numeric', month: 'short' };
const FULL = { year: 'numeric', month: 'short', day: 'numeric', ...CLOCK, timeZoneName: 'short' };

const moment = at => typeof at === 'number' ? at : Date.parse(at);
const inZone = (at, options, zone = shownZone()) => Number.isFinite(moment(at)) ? format(zone, options).format(moment(at)) : '—';
const sameDay = (one, other) => inZone(one, DAY) === inZone(other, DAY);

/** `14:03:09`, with the day if it is not today. */
export function clock(at, now = Date.now()) {
  return sameDay(at, now) ? inZone(at, CLOCK) : `${inZone(at, DAY)} ${inZone(at, SHORT)}`;
}
/** A text of the pool, with its timestamps formatted by `clock`. */
export const withClocks = text => String(text).replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, at => clock(at));
export const timeOfDay = at => inZone(at, CLOCK);
export const hourMinute = at => inZone(at, SHORT);
export const day = at => inZone(at, DAY);

/** For titles: the time in the reader's zone, in the pool's zone, and as written by the API. */
export function wholeTime(at) {
  if (!Number.isFinite(moment(at))) return '';
  const lines = [`${inZone(at, FULL, ownZone())} (yours: ${ownZone()})`];
  if (poolZone) lines.push(`${inZone(at, FULL, poolZone)} (the pool's: ${poolZone})`);
  lines.push(new Date(moment(at)).toISOString());
  return lines.join('\n');
}

/** `just now`, `4 min ago`, `3 d ago`. */
export function ago(at, now) {
  const ms = now - moment(at);
  if (!Number.isFinite(ms)) return 'never';
  if (ms < 5000) return 'just now';
  if (ms < 60_000) return `${Math.round(ms / 1000)}\u00a0s ago`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)}\u00a0min ago`;
  if (ms < 86_400_000) return `${Math.round(ms / 3_600_000)}\u00a0h ago`;
  return `${Math.round(ms / 86_400_000)}\u00a0d ago`;
}

// Terminal colours and cursor movements, window titles, then any other control character.
const SEQUENCES = /\u001b\[[0-?]*[ -/]*[@-~]|\u009b[0-?]*[ -/]*[@-~]|\u001b[\]PX^_][\s\S]*?(?:\u0007|\u001b\\|$)|\u001b[ -/]*[0-~]/g;
// The pool writes control characters in logs as `\u{1b}`.
const ESCAPED = /\\u\{(?:1b\}\[[0-?]*[ -/]*[@-~]|1b\}\][^\\]*(?:\\u\{7\}|\\u\{1b\}\\|$)|9b\}[0-?]*[ -/]*[@-~])/g;
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** An external text without terminal sequences; other control characters become visible symbols. */
export function clean(text) {
  return String(text ?? '').replace(SEQUENCES, '').replace(ESCAPED, '').replace(/\r/g, '').replace(CONTROLS, it => it < ' ' ? String.fromCharCode(0x2400 + it.charCodeAt(0)) : '\ufffd');
}

/** Shortens a text to at most `most` characters, keeping its beginning and end. */
export function short(text, most = 80) {
  const plain = clean(text);
  if (plain.length <= most) return plain;
  const tail = Math.floor(most / 4);
  return `${plain.slice(0, most - tail - 1)}…${plain.slice(-tail)}`;
}
