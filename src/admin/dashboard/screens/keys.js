// API keys: creating, changing and revoking them. A new key is shown once.
import { html, useCallback, useEffect, useState } from '../lib/view.js';
import { get, post, READ_ONLY, request, useMayChange } from '../lib/api.js';
import { clean, count, short } from '../lib/text.js';
import { link } from '../lib/route.js';
import { Ago, Button, Clock, Empty, Head, Loading, Problem, Search, copyText } from '../parts/bits.js';
import { Confirm, Dialog, FailureLine, Field, openDialog } from '../parts/dialog.js';
import { Menu } from '../parts/menu.js';
import { tell } from '../parts/messages.js';
import { Table } from '../parts/table.js';

const LIMITS = [['requests_per_minute', 'Requests per minute'], ['tokens_per_minute', 'Tokens per minute'], ['concurrent_requests', 'Concurrent requests'], ['tokens_per_day', 'Tokens per day']];
const limitWords = it => !it ? 'default' : LIMITS.filter(([name]) => it[name] !== null && it[name] !== undefined).map(([name, word]) => `${it[name].toLocaleString('en')} ${word.toLowerCase()}`).join(', ') || 'none';
const some = list => list.length ? list.map(it => short(it, 40)).join(', ') : 'all';

export function KeysScreen() {
  const may = useMayChange(), [keys, setKeys] = useState(null), [failure, setFailure] = useState(null), [find, setFind] = useState('');
  const read = useCallback(() => get('/admin/keys').then(it => { setKeys([...it.keys].sort((one, other) => other.created_at.localeCompare(one.created_at))); setFailure(null); }, setFailure), []);
  useEffect(() => { read(); }, []);
  const rows = (keys ?? []).filter(it => `${it.name} ${it.id} ${it.prefix} ${it.role}`.toLowerCase().includes(find.toLowerCase()));
  const columns = [
    { id: 'name', title: 'Name', grow: 2, least: 130, cell: (it, width) => html`<span class="stack"><span class="clip" title=${clean(it.name)}><b>${short(it.name, 60)}</b></span><span class="soft figure clip">${it.id} · ${clean(it.prefix)}…</span>${width < 860 && html`<span class="soft small clip">${it.expires_at ? html`until <${Clock} at=${it.expires_at} />` : 'no expiry'}${width < 760 && ` · models: ${some(it.models)}`}</span>`}</span>` },
    { id: 'role', title: 'Role', width: '70px', cell: it => html`<span class="role">${it.role}</span>` },
    { id: 'models', title: 'Models', grow: 1, hide: 760, cell: it => html`<span class="soft" title=${it.models.join(', ')}>${some(it.models)}</span>` },
    { id: 'routes', title: 'Routes', grow: 1, hide: 1000, cell: it => html`<span class="soft" title=${it.routes.join(', ')}>${some(it.routes)}</span>` },
    { id: 'limits', title: 'Limits', grow: 2, hide: 1100, cell: it => html`<span class="soft" title=${limitWords(it.limits)}>${limitWords(it.limits)}</span>` },
    { id: 'used', title: 'Last used', width: '96px', hide: 560, cell: it => html`<${Ago} at=${it.last_used_at} />` },
    { id: 'ends', title: 'Expires', width: '132px', hide: 860, cell: it => it.expires_at ? html`<${Clock} at=${it.expires_at} />` : html`<span class="faint">never</span>` },
    { id: 'act', title: 'Actions', quiet: true, right: true, width: '40px', cell: it => html`<${Menu} label=${`Actions for the key ${short(it.name, 40)}`} items=${[['Change…', () => openDialog(KeyDialog, { of: it, done: read }), { icon: 'config', disabled: !may, why: READ_ONLY }], ['Its audit', () => { location.hash = link('audit', { of: it.id }).slice(1); }, { icon: 'audit' }], null, ['Revoke…', () => openDialog(Revoke, { of: it, done: read }), { icon: 'close', danger: true, disabled: !may, why: READ_ONLY }]]} />` },
  ];
  return html`<${Head} title="Keys" about=${keys ? count(keys.length, 'key') : undefined}><${Search} label="Find a key" value=${find} onInput=${setFind} /><${Button} kind="main" icon="plus" disabled=${!may} title=${may ? undefined : READ_ONLY} onClick=${() => openDialog(KeyDialog, { done: read })}>New key<//><//>
    ${failure ? html`<${Problem} failure=${failure} again=${read} />` : !keys ? html`<${Loading} />` : html`<${Table} label="Keys" columns=${columns} rows=${rows} id=${it => it.id} rowHeight=${innerWidth < 1140 ? 68 : 52} empty=${html`<${Empty} icon="keys" title="No key has this name" />`} />`}`;
}

const list = text => text.split(/[\s,]+/).filter(Boolean);

function KeyDialog({ of: key, done, close }) {
  const [fields, setFields] = useState({ name: key?.name ?? '', role: key?.role ?? 'user', expires: '', models: (key?.models ?? []).join(' '), routes: (key?.routes ?? []).join(' '), log_prompts: key?.log_prompts ?? false, ...Object.fromEntries(LIMITS.map(([name]) => [name, key?.limits?.[name]?.toString() ?? ''])) });
  const [made, setMade] = useState(null), [failure, setFailure] = useState(null), [busy, setBusy] = useState(false);
  const set = (name, value) => setFields(before => ({ ...before, [name]: value }));
  const field = (name, label, more = {}) => html`<${Field} label=${label} id=${`key-${name}`} help=${more.help} error=${failure?.param === name ? failure.message : null}><input id=${`key-${name}`} value=${fields[name]} autocomplete="off" onInput=${event => set(name, event.currentTarget.value)} ...${more} /><//>`;
  const limits = Object.fromEntries(LIMITS.filter(([name]) => fields[name] !== '').map(([name]) => [name, Number(fields[name])]));
  const save = async () => {
    setBusy(true);
    setFailure(null);
    try {
      const common = { name: fields.name, models: list(fields.models), routes: list(fields.routes), log_prompts: fields.log_prompts };
      if (key) {
        const cleared = Object.fromEntries(LIMITS.map(([name]) => [name, limits[name] ?? null]));
        await request('PATCH', '/admin/keys', { query: { id: key.id }, body: { ...common, ...(fields.expires.trim() && { expires: fields.expires.trim() }), limits: Object.keys(limits).length ? cleared : null } });
        tell(`The key ${short(fields.name, 40)} is changed`);
        done();
        close();
      } else {
        setMade(await post('/admin/keys', { ...common, role: fields.role, ...(fields.expires.trim() && { expires: fields.expires.trim() }), ...(Object.keys(limits).length && { limits }) }));
        done();
      }
    } catch (error) { setFailure(error); }
    setBusy(false);
  };
  if (made) {
    return html`<${Dialog} title="The new key" close=${close} foot=${html`<${Button} kind="main" onClick=${close} data-first>Done<//>`}><p>This is the key of <b>${short(made.name, 60)}</b>. Copy it now: it is not shown again.</p>
      <div class="secret"><code class="wrap" id="new-key">${made.key}</code><${Button} icon="copy" onClick=${async () => { if (await copyText(made.key)) tell('The key is copied'); }}>Copy<//></div><//>`;
  }
  return html`<${Dialog} wide title=${key ? `Change the key ${short(key.name, 40)}` : 'New key'} close=${close} foot=${html`<${Button} onClick=${close}>Cancel<//><${Button} kind="main" busy=${busy} disabled=${!fields.name.trim()} onClick=${save}>${key ? 'Save' : 'Create key'}<//>`}>
    <div class="fields">${field('name', 'Name', { help: 'Who or what uses it.', 'data-first': true, maxlength: 100 })}
      ${!key && html`<${Field} label="Role" id="key-role" help="Admins change the pool, viewers see it, users send requests."><select id="key-role" value=${fields.role} onChange=${event => set('role', event.currentTarget.value)}><option value="user">user</option><option value="viewer">viewer</option><option value="admin">admin</option></select><//>`}
      ${field('expires', 'Expires in', { help: key?.expires_at ? 'Empty: unchanged.' : 'Such as 180d. Empty: never.', placeholder: key ? '' : '180d' })}</div>
    <div class="fields">${field('models', 'Models', { help: 'Names or patterns such as tiny-*. Empty: all.' })}${field('routes', 'Routes', { help: 'Such as /v1/embeddings. Empty: all of its role.' })}</div>
    <div class="fields">${LIMITS.map(([name, word]) => field(name, word, { type: 'number', min: 1, placeholder: 'default' }))}</div>
    <label class="check"><input type="checkbox" checked=${fields.log_prompts} onChange=${event => set('log_prompts', event.currentTarget.checked)} /><span>Log its prompts in the access log</span></label>${failure && !failure.param && html`<${FailureLine} failure=${failure} />`}${failure?.param && !['name', 'expires', 'models', 'routes'].includes(failure.param) && html`<${FailureLine} failure=${failure} />`}<//>`;
}

function Revoke({ of: key, done, close }) {
  const act = async () => { await request('DELETE', '/admin/keys', { query: { id: key.id } }); tell(`The key ${short(key.name, 40)} is revoked`); done(); };
  return html`<${Confirm} title=${`Revoke the key ${short(key.name, 40)}`} close=${close} danger action="Revoke" act=${act}><p>Requests with <b class="figure">${clean(key.prefix)}…</b> are refused from now on. This cannot be undone.</p><p class="soft">Last used: <${Ago} at=${key.last_used_at} />.</p><//>`;
}
