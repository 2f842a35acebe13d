// Data of the signed-in user: models, waiting and running requests, key and usage.
import { useEffect, useState } from './view.js';
import { get } from './api.js';
import { divide } from './colour.js';
import { ticks } from './live.js';

/** Polls a path while the page is visible. Returns [data, failure, time of the data]. */
export function useAgain(path, query, everyMs) {
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
  // A key for all models gets the same colours as administrators.
  if (state[0]) divide(state[0].models.map(it => it.model));
  return state;
}
export const useMyUsage = days => useAgain('/me/usage', { days }, 15_000);

export const tokensOf = it => it.prompt_tokens + it.completion_tokens;

/** Sums of several days by model, most tokens first. */
export function byModel(days) {
  const sums = new Map();
  for (const { models } of days) for (const it of models) {
    const sum = sums.get(it.model) ?? { model: it.model, requests: 0, prompt_tokens: 0, completion_tokens: 0, in_batches: 0 };
    for (const name of ['requests', 'prompt_tokens', 'completion_tokens']) sum[name] += it[name];
    sum.in_batches += it.batches?.requests ?? 0;
    sums.set(it.model, sum);
  }
  return [...sums.values()].sort((one, other) => tokensOf(other) - tokensOf(one) || other.requests - one.requests || (one.model < other.model ? -1 : 1));
}

/** The last days up to `today`, including days without usage. */
export function allDays(usage, many) {
  const known = new Map(usage.days.map(it => [it.day, it])), last = Date.parse(`${usage.today}T00:00:00Z`);
  return Array.from({ length: many }, (_, nth) => {
    const day = new Date(last - (many - 1 - nth) * 86_400_000).toISOString().slice(0, 10);
    return known.get(day) ?? { day, models: [] };
  });
}
