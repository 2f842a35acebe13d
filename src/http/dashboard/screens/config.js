// The configuration in force, searchable by key and value, and reading it again.
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
const shown = value => value === null ? 'null' : typeof value === 'string' ? value : JSON.stringify(value);

export function Configuration() {
  const may = useMayChange(), [config, setConfig] = useState(null), [failure, setFailure] = useState(null), [find, setFind] = useState('');
  const read = useCallback(() => get('/admin/config').then(it => { setConfig(it); setFailure(null); }, setFailure), []);
  useEffect(() => { read(); }, []);
  const rows = useMemo(() => config ? flat(config) : [], [config]), words = find.toLowerCase();
  const sections = new Map();
  for (const row of rows) if (`${row.key} ${shown(row.value)}`.toLowerCase().includes(words)) sections.set(row.section, [...sections.get(row.section) ?? [], row]);
  return html`<${Head} title="Configuration" about="As it is in force, with its defaults and without secrets. Each key can be set by an environment variable of its name."><${Search} label="Find a key or a value" value=${find} onInput=${setFind} />
      <${Button} disabled=${!may} title=${may ? undefined : READ_ONLY} onClick=${() => openDialog(Reload, { done: read })}>Read it again…<//><//>
    ${failure ? html`<${Problem} failure=${failure} again=${read} />` : !config ? html`<${Loading} />` : sections.size === 0 ? html`<${Empty} icon="config" title="No key or value is like this" />`
      : html`<div class="config-grid">${[...sections].map(([section, list]) => html`<section class="lines-card" key=${section}><h2 class="figure">${section}</h2><dl class="config-rows">${list.map(row => html`<div key=${row.key}><dt><button type="button" class="text-button figure" title=${`MODEL_POOL__${row.key.toUpperCase().replaceAll('.', '__')}: copy`} onClick=${async () => { if (await copyText(`MODEL_POOL__${row.key.toUpperCase().replaceAll('.', '__')}`)) tell('The variable’s name is copied'); }}>${row.key.slice(section.length + 1) || row.key}</button></dt><dd class="figure wrap">${row.value === null ? html`<span class="faint">null</span>` : short(shown(row.value), 400)}</dd></div>`)}</dl></section>`)}</div>`}`;
}

function Reload({ done, close }) {
  const [answer, setAnswer] = useState(null);
  if (answer) {
    const list = (title, items, of) => items.length > 0 && html`<h3>${title}</h3><ul class="plain lines">${items.map((it, nth) => html`<li key=${nth} class="wrap">${of(it)}</li>`)}</ul>`;
    const change = it => html`<b class="figure">${it.key}</b><span class="figure">${short(shown(it.from), 80)} → ${short(shown(it.to), 80)}</span>${it.note && html`<span class="soft">${it.note}</span>`}`;
    return html`<${Dialog} wide title="What is different now" close=${close} foot=${html`<${Button} kind="main" onClick=${close} data-first>Close<//>`}><p>${count(answer.unchanged, 'key')} are as they were; ${count(answer.added.length, 'model')} added, ${answer.changed.length} changed, ${answer.removed.length} removed.</p>
      ${list('In force now', answer.applied, change)}${list('In force after a restart', answer.needs_restart, change)}${list('Models', [...answer.added.map(it => `added ${it}`), ...answer.changed.map(it => `changed ${it}`), ...answer.removed.map(it => `removed ${it}`)], clean)}
      ${list('Files that cannot be used', answer.broken, it => html`<b>${clean(it.source)}</b> <span class="bad-words">${clean(it.error)}</span>`)}${list('Warnings', answer.warnings, clean)}<//>`;
  }
  const act = async () => { const it = await post('/admin/reload'); done(); setAnswer(it); throw new Done(); };
  return html`<${Confirm} title="Read the configuration again" close=${close} action="Read it again" act=${() => act().catch(it => { if (!(it instanceof Done)) throw it; return new Promise(() => {}); })}><p>The configuration file, the model files and the reference are read and checked. If the configuration is wrong, nothing changes. Only what is different is touched.</p><//>`;
}
class Done extends Error {}
