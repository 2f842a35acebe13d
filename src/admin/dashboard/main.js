// Entry point: session, current screen, and global keyboard shortcuts.
import { html, render, useEffect, useErrorBoundary } from './lib/view.js';
import { session, whoAmI } from './lib/api.js';
import { connect, disconnect, live } from './lib/live.js';
import { go, returnToPlace, route } from './lib/route.js';
import { settings } from './lib/settings.js';
import { Dialogs, closeDialog, isOpen } from './parts/dialog.js';
import { Button, Loading } from './parts/bits.js';
import { Messages } from './parts/messages.js';
import { openHelp } from './parts/help.js';
import { openPalette } from './parts/palette.js';
import { SCREENS } from './parts/screens.js';
import { Shell } from './parts/shell.js';
import { Tips } from './parts/tip.js';
import { Account } from './screens/account.js';
import { Audit } from './screens/audit.js';
import { Batches } from './screens/batches.js';
import { Configuration } from './screens/config.js';
import { Devices } from './screens/devices.js';
import { Evening } from './screens/evening.js';
import { Events } from './screens/events.js';
import { Home } from './screens/home.js';
import { KeysScreen } from './screens/keys.js';
import { Leaderboard } from './screens/leaderboard.js';
import { Logs } from './screens/logs.js';
import { ModelPanel } from './screens/model.js';
import { Models } from './screens/models.js';
import { Nodes } from './screens/nodes.js';
import { Playground } from './screens/playground.js';
import { Pool } from './screens/pool.js';
import { Queue } from './screens/queue.js';
import { Report } from './screens/report.js';
import { SignIn } from './screens/signin.js';
import { TimeLine } from './screens/timeline.js';
import { Usage } from './screens/usage.js';

const VIEWS = { home: Home, usage: Usage, pool: Pool, models: Models, queue: Queue, batches: Batches, events: Events, timeline: TimeLine, account: Account, audit: Audit, report: Report, playground: Playground, leaderboard: Leaderboard, logs: Logs, devices: Devices, nodes: Nodes, evening: Evening, keys: KeysScreen, config: Configuration };

/** Screens next to which a model's panel opens; other screens use `model` for themselves. */
const WITH_PANEL = new Set(['pool', 'models', 'queue', 'timeline', 'devices', 'evening', 'report', 'account']);

function Screen({ of: View }) {
  const [error, again] = useErrorBoundary(it => console.error(it));
  if (error) return html`<div class="problem" role="alert"><div><p><b>This screen has failed.</b> Other screens still work.</p><p class="soft">${String(error.message ?? error)}</p><p><${Button} onClick=${again}>Try again<//></p></div></div>`;
  return html`<${View} />`;
}

function App() {
  const { state, who } = session.use(), { screen, query } = route.use(), has = live.use(it => it.has);
  settings.use(it => it.zone);
  const isIn = state === 'in', role = who?.role;
  useEffect(() => {
    if (isIn && role !== 'user') connect();
    else disconnect();
    return disconnect;
  }, [isIn, role]);
  useEffect(() => { if (state !== 'in') closeDialog(); else returnToPlace(); }, [state]);
  useEffect(closeDialog, [screen]);
  const known = SCREENS[screen]?.for.includes(role) ? screen : role === 'user' ? 'home' : 'pool';
  useEffect(() => {
    document.title = isIn ? `${SCREENS[known].word} – model-pool` : 'Sign in – model-pool';
    scrollTo(0, 0);
  }, [known, isIn]);
  if (!isIn) return html`<${SignIn} key=${state} isEnded=${state === 'ended'} />`;
  const waits = role !== 'user' && !has;
  return html`<${Shell} panel=${role !== 'user' && query.model && WITH_PANEL.has(known) && html`<${ModelPanel} name=${query.model} key=${query.model} />`}>${waits ? html`<${Loading} what="Reading the pool" />` : html`<${Screen} key=${known} of=${VIEWS[known]} />`}<//>
    <${Dialogs} /><${Messages} /><${Tips} />`;
}

let afterG = 0;
addEventListener('keydown', event => {
  const isTyping = event.target.closest?.('input, textarea, select, [contenteditable]');
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
    event.preventDefault();
    if (session.get().state === 'in') openPalette();
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || isOpen() || session.get().state !== 'in') return;
  if (Date.now() - afterG < 1200) {
    afterG = 0;
    const found = Object.entries(SCREENS).find(([, it]) => it.key === event.key && it.for.includes(session.get().who?.role));
    if (found) { event.preventDefault(); go(found[0]); }
    return;
  }
  if (event.key === 'g') afterG = Date.now();
  else if (event.key === '?') { event.preventDefault(); openHelp(); }
  else if (event.key === '/') {
    event.preventDefault();
    const search = document.querySelector('main [data-search]');
    if (search) search.focus(); else openPalette();
  }
});

render(html`<${App} />`, document.getElementById('app'));
whoAmI();
