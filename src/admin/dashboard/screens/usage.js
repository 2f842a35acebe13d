// A user's usage, by day and model, and the key with its limits and expiry.
import { html, useMemo, useState } from '../lib/view.js';
import { session } from '../lib/api.js';
import { sum } from '../lib/device.js';
import { allDays, byModel, tokensOf, useMe, useMyUsage } from '../lib/me.js';
import { clean, short } from '../lib/text.js';
import { Ago, Choice, Clock, Empty, Fact, Head, Loading, Name, Problem, ofModel } from '../parts/bits.js';

const RANGES = [['7', 'Week'], ['30', 'Month'], ['100', '100 days']], WHAT = [['tokens', 'Tokens'], ['requests', 'Requests']];
const LIMITS = [['requests_per_minute', 'requests per minute'], ['tokens_per_minute', 'tokens per minute'], ['concurrent_requests', 'concurrent requests'], ['tokens_per_day', 'tokens per day']];
const number = it => it.toLocaleString('en');
const words = day => new Intl.DateTimeFormat('en-GB', { timeZone: 'UTC', weekday: 'short', day: 'numeric', month: 'short' }).format(Date.parse(`${day}T00:00:00Z`));

/** A stacked column per day, coloured by model. The table below has the same data. */
function Days({ days, of, word, top }) {
  const most = Math.max(1, ...days.map(it => sum(it.models, of)));
  const about = day => [words(day.day), `${number(sum(day.models, of))} ${word}`, ...byModel([day]).map(it => `${short(it.model, 60)}: ${number(of(it))}`)].join('\n');
  const every = Math.ceil(days.length / 8);
  return html`<figure class="days" role="img" aria-label=${`${word} by day: ${number(sum(days, it => sum(it.models, of)))} in ${days.length} days, at most ${number(most)} in one`}><span class="days-most figure">${number(most)}</span>
    <div class="days-columns" data-many=${days.length > 40 ? 'yes' : undefined}>${days.map(day => html`<span class="days-column" key=${day.day} title=${about(day)}>${top.map(model => day.models.find(it => it.model === model)).filter(Boolean).map(it => html`<span class="days-part" key=${it.model} style=${{ ...ofModel(it.model), '--part': of(it) / most }}></span>`)}</span>`)}</div>
    <div class="days-words" aria-hidden="true">${days.map((day, nth) => (days.length - 1 - nth) % every === 0 ? html`<span key=${day.day} style=${{ '--at': (nth + 0.5) / days.length }}>${words(day.day).replace(/^\S+ /, '')}</span>` : null)}</div></figure>`;
}

function Key({ of: me }) {
  const { key, limits } = me, some = list => list.length ? list.map(it => short(it, 60)).join(', ') : 'all';
  const limited = LIMITS.filter(([name]) => limits[name] !== null && limits[name] !== undefined);
  return html`<section class="lines-card"><h2>${key ? 'Your key' : 'You'}</h2><dl>
    <${Fact} label="Name"><b>${short(me.name, 100)}</b> <span class="role">${me.role}</span><//>
    ${key && html`<${Fact} label="Key"><span class="figure">${clean(key.prefix)}…</span> <span class="soft figure">${key.id}</span><//><${Fact} label="Expires">${key.expires_at ? html`<${Clock} at=${key.expires_at} />` : 'never'}<//>
      <${Fact} label="Created"><${Clock} at=${key.created_at} /><//><${Fact} label="Last used"><${Ago} at=${key.last_used_at} /><//><${Fact} label="Models">${some(key.models)}<//><${Fact} label="Routes">${some(key.routes)}<//>
      <${Fact} label="Prompts">${key.log_prompts ? html`<b>are kept in the access log</b>` : 'are not kept'}<//>`}
    ${me.group && html`<${Fact} label="Group"><b class="clip">${short(me.group.path, 200)}</b> <span class="soft">class ${me.group.class_max}, ${Math.round(100 * me.group.share_now)} % of the service now</span><//>
      ${me.group.quotas.map((it, nth) => html`<${Fact} key=${nth} label="Quota">${[it.gpu_hours !== null && `${number(it.gpu_hours)} GPU hours`, it.tokens !== null && `${number(it.tokens)} tokens`].filter(Boolean).join(' or ')} <span class="soft">a month, ${Math.round(100 * it.used_ratio)} % used, then ${it.at_end}</span><//>`)}`}
    <${Fact} label="Limits">${limited.length ? html`<ul class="limits">${limited.map(([name, word]) => html`<li key=${name}><b class="figure">${number(limits[name])}</b> ${word}</li>`)}</ul>` : 'none'}<//></dl>
    <p class="soft key-words">${key ? 'Administrators change it, and create another one when it expires or is lost. If it has leaked, have it revoked.' : 'You have no key: you are signed in as a person, or need none. Your rights come from the configuration.'}</p></section>`;
}

export function Usage() {
  const who = session.use(it => it.who), [many, setMany] = useState('30'), [what, setWhat] = useState('tokens'), [usage, failure] = useMyUsage(many), [me] = useMe();
  const days = useMemo(() => usage && allDays(usage, Number(many)), [usage, many]), models = useMemo(() => usage && byModel(usage.days), [usage]);
  const of = what === 'tokens' ? tokensOf : it => it.requests, all = models ? Math.max(1, sum(models, of)) : 1;
  const tile = (value, word) => html`<div class="tile"><span class="tile-value figure">${value}</span><span class="tile-word">${word}</span></div>`;
  return html`<${Head} title="Usage and key" about=${usage ? `Days begin at midnight where the pool is. Today is ${words(usage.today)}.` : undefined}><${Choice} label="Figure" value=${what} of=${WHAT} onChange=${setWhat} /><${Choice} label="Time" value=${many} of=${RANGES} onChange=${setMany} /><//>
    ${failure && html`<${Problem} failure=${failure} />`}${!usage && !failure && html`<${Loading} />`}
    ${usage && (who?.by === 'nothing' ? html`<${Empty} icon="report" title="Nothing is counted without a key">Sign in with a key to see what it used.<//>` : models.length === 0 ? html`<${Empty} icon="report" title="No usage in this period">Requests and tokens of your key are counted here, by day and model.<//>` : html`
      <div class="tiles" role="group" aria-label="In all">${tile(number(sum(models, it => it.requests)), 'requests')}${tile(number(sum(models, it => it.prompt_tokens)), 'prompt tokens')}${tile(number(sum(models, it => it.completion_tokens)), 'completion tokens')}${tile(models.length, models.length === 1 ? 'model' : 'models')}</div>
      <${Days} days=${days} of=${of} word=${what} top=${models.map(it => it.model)} />
      <div class="table-frame usage-table"><table class="plain-table"><thead><tr><th>Model</th><th class="right">Requests</th><th class="right wide-only">In batches</th><th class="right wide-only">Prompts</th><th class="right wide-only">Answers</th><th class="right">Tokens</th><th class="share">Share</th></tr></thead>
        <tbody>${models.slice(0, 200).map(it => html`<tr key=${it.model}><td><${Name} of=${it.model} /></td><td class="right figure">${number(it.requests)}</td><td class="right figure wide-only">${number(it.in_batches)}</td><td class="right figure wide-only">${number(it.prompt_tokens)}</td><td class="right figure wide-only">${number(it.completion_tokens)}</td><td class="right figure">${number(tokensOf(it))}</td>
          <td class="share"><span class="meter" style=${ofModel(it.model)} title=${`${(100 * of(it) / all).toFixed(1)} %`}><span style=${{ '--part': of(it) / all }}></span></span></td></tr>`)}</tbody></table></div>`)}
    ${me && html`<${Key} of=${me} />`}`;
}
