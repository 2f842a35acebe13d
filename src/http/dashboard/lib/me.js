// What the pool says of the person who is signed in: their models, their requests that wait or run, their key and what they used.
import { useEffect, useState } from './view.js';
import { get } from './api.js';
import { divide } from './colour.js';
import { ticks } from './live.js';

/** Reads a path again and again while the page is in sight: [what it says, why it cannot be read, when it was read]. */
function useAgain(path, query, everyMs) {
  const [state, setState] = useState([null, null, 0]), asked = JSON.stringify(query ?? {});
  useEffect(() => {
    let over = false, timer = 0;
    const read = async () => {
      if (!document.hidden) {
        try { const it = await get(path, query); if (!over) setState([it, null, ticks()]); } catch (failure) { if (!over) setState(([it, , at]) => [it, failure, at]); }
      }
      if (!over) timer = setTimeout(read, everyMs);
    };
    const look = () => { if (!document.hidden) { clearTimeout(timer); read(); } };
    read();
    document.addEventListener('visibilitychange', look);
    return () => { over = true; clearTimeout(timer); document.removeEventListener('visibilitychange', look); };
  }, [path, asked, everyMs]);
  return state;
}

export function useMe() {
  const state = useAgain('/me', undefined, 2000);
  // A key for all models then has the colours that administrators see.
  if (state[0]) divide(state[0].models.map(it => it.model));
  return state;
}
export const useMyUsage = days => useAgain('/me/usage', { days }, 15_000);

export const tokensOf = it => it.prompt_tokens + it.completion_tokens;

/** The sums of some days, by model, the one with most tokens first. */
export function byModel(days) {
  const sums = new Map();
  for (const { models } of days) for (const it of models) {
    const sum = sums.get(it.model) ?? { model: it.model, requests: 0, prompt_tokens: 0, completion_tokens: 0 };
    for (const name of ['requests', 'prompt_tokens', 'completion_tokens']) sum[name] += it[name];
    sums.set(it.model, sum);
  }
  return [...sums.values()].sort((one, other) => tokensOf(other) - tokensOf(one) || other.requests - one.requests || (one.model < other.model ? -1 : 1));
}

/** So many days up to `today`, with those in between in which nothing was used. */
export function allDays(usage, many) {
  const known = new Map(usage.days.map(it => [it.day, it])), last = Date.parse(`${usage.today}T00:00:00Z`);
  return Array.from({ length: many }, (_, nth) => {
    const day = new Date(last - (many - 1 - nth) * 86_400_000).toISOString().slice(0, 10);
    return known.get(day) ?? { day, models: [] };
  });
}
