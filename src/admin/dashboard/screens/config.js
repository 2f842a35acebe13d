// The current configuration with the origin of each value, searchable, and reloading it.
import { html, useCallback, useEffect, useMemo, useState } from '../lib/view.js';
import { get, post, READ_ONLY, useMayChange } from '../lib/api.js';
import { clean, count, short } from '../lib/text.js';
import { Button, Empty, Head, Loading, Problem, Search, copyText } from '../parts/bits.js';
import { Confirm, Dialog, openDialog } from '../parts/dialog.js';
import { tell } from '../parts/messages.js';

function flat(value, path = []) {
  if (value !== null && typeof value === 'object' && !Array.isArray(value) && Object.keys(value).length) return Object.entries(value).flatMap(([name, it]) => flat(it, [...path, name]));
  return [{ key: path.join('.'), section: path[0], value }];
}
const variable = key => `MODEL_POOL__${key.toUpperCase().replaceAll('.', '__')}`;
const copyVariable = async key => { if (await copyText(variable(key))) tell('The variable’s name is copied'); };

/** Describes the origin of a value. */
function originOf(origins, key) {
  const origin = origins.origins[key];
  if (!origin) return { isSet: false, words: 'default' };
  return origin.variable ? { isSet: true, words: 'environment', title: origin.variable } : { isSet: true, words: `line ${origin.line}`, title: `${clean(origins.file ?? '')}, line ${origin.line}` };
}

const shown = value => value === null ? 'null' : typeof value === 'string' ? value : JSON.stringify(value);

export function Configuration() {
  const may = useMayChange(), [config, setConfig] = useState(null), [origins, setOrigins] = useState(null), [failure, setFailure] = useState(null), [find, setFind] = useState(''), [onlySet, setOnlySet] = useState(false);
  const read = useCallback(() => Promise.all([get('/admin/config'), get('/admin/config/origins')]).then(([values, from]) => { setConfig(values); setOrigins(from); setFailure(null); }, setFailure), []);
  useEffect(() => { read(); }, []);
  const rows = useMemo(() => config ? flat(config).map(row => ({ ...row, origin: originOf(origins, row.key) })) : [], [config, origins]), words = find.toLowerCase();
  const sections = new Map();
  for (const row of rows) if ((!onlySet || row.origin.isSet) && `${row.key} ${shown(row.value)} ${row.origin.words} ${row.origin.title ?? ''}`.toLowerCase().includes(words)) sections.set(row.section, [...sections.get(row.section) ?? [], row]);
  const about = origins?.file ? `The values in force, without secrets. The file is ${short(origins.file, 120)}.` : 'The values in force, without secrets. There is no configuration file.';
  return html`<${Head} title="Configuration" about=${about}><${Search} label="Find a key, a value or a line" value=${find} onInput=${setFind} />
      <label class="check"><input type="checkbox" checked=${onlySet} onChange=${event => setOnlySet(event.currentTarget.checked)} /><span>Hide defaults</span></label>
      <${Button} disabled=${!may} title=${may ? undefined : READ_ONLY} onClick=${() => openDialog(Reload, { done: read })}>Reload…<//><//>
    ${failure ? html`<${Problem} failure=${failure} again=${read} />` : !config ? html`<${Loading} />` : sections.size === 0 ? html`<${Empty} icon="config" title=${onlySet && !find ? 'All values are defaults' : 'No matching key or value'} />`
      : html`<div class="config-grid">${[...sections].map(([section, list]) => html`<section class="lines-card" key=${section}><h2 class="figure">${section}</h2><dl class="config-rows">${list.map(row => html`<${Row} row=${row} key=${row.key} />`)}</dl></section>`)}</div>`}`;
}

/** A key that may wrap after dots and underscores. */
const Breakable = ({ of: key }) => key.split(/(?<=[._])/).map((part, nth) => html`${nth > 0 && html`<wbr />`}${part}`);

function Row({ row }) {
  const { origin } = row;
  return html`<div><dt><button type="button" class="text-button figure" title=${`${variable(row.key)}: copy`} onClick=${() => copyVariable(row.key)}><${Breakable} of=${row.key.slice(row.section.length + 1) || row.key} /></button></dt>
    <dd class="figure wrap">${row.value === null ? html`<span class="faint">null</span>` : short(shown(row.value), 400)}<span class=${`config-origin ${origin.isSet ? 'is-set' : 'faint'}`} title=${origin.title}>${origin.words}</span></dd></div>`;
}

function Reload({ done, close }) {
  const [answer, setAnswer] = useState(null);
  if (answer) {
    const list = (title, items, of) => items.length > 0 && html`<h3>${title}</h3><ul class="plain lines">${items.map((it, nth) => html`<li key=${nth} class="wrap">${of(it)}</li>`)}</ul>`;
    const change = it => html`<b class="figure">${it.key}</b><span class="figure">${short(shown(it.from), 80)} → ${short(shown(it.to), 80)}</span>${it.note && html`<span class="soft">${it.note}</span>`}`;
    return html`<${Dialog} wide title="Changes" close=${close} foot=${html`<${Button} kind="main" onClick=${close} data-first>Close<//>`}><p>${count(answer.unchanged, 'key')} unchanged; ${count(answer.added.length, 'model')} added, ${answer.changed.length} changed, ${answer.removed.length} removed.</p>
      ${list('In force now', answer.applied, change)}${list('In force after a restart', answer.needs_restart, change)}${list('Models', [...answer.added.map(it => `added ${it}`), ...answer.changed.map(it => `changed ${it}`), ...answer.removed.map(it => `removed ${it}`)], clean)}
      ${list('Files that cannot be used', answer.broken, it => html`<b>${clean(it.source)}</b> <span class="bad-words">${clean(it.error)}</span>`)}${list('Warnings', answer.warnings, clean)}<//>`;
  }
  const act = async () => { const it = await post('/admin/reload'); done(); setAnswer(it); throw new Done(); };
  return html`<${Confirm} title="Reload the configuration" close=${close} action="Reload" act=${() => act().catch(it => { if (!(it instanceof Done)) throw it; return new Promise(() => {}); })}><p>The configuration file, the model files and the reference are read and checked. If the configuration is wrong, nothing changes. Only changes are applied.</p><//>`;
}
class Done extends Error {}
