// The help dialog with keyboard shortcuts.
import { html } from '../lib/view.js';
import { session } from '../lib/api.js';
import { Dialog, openDialog } from './dialog.js';
import { Keys } from './bits.js';
import { SCREENS } from './screens.js';

export const openHelp = () => openDialog(Help);

const GENERAL = [['Ctrl K', 'Find a screen, a model or an action'], ['/', 'Search on this screen'], ['?', 'This help'], ['Esc', 'Close what is open']];
const TABLES = [['↑ ↓', 'Move between rows; also j and k'], ['Enter', 'Open the row'], ['Space', 'Choose the row'], ['Home End', 'First and last row']];
const TIMES = [['+ −', 'Zoom the time line'], ['← →', 'Move along it']];

function Help({ close }) {
  const role = session.get().who?.role;
  const list = rows => html`<dl class="keys-list">${rows.map(([keys, words]) => html`<dt key=${keys + words}><${Keys} of=${keys} /></dt><dd>${words}</dd>`)}</dl>`;
  return html`<${Dialog} title="Keyboard" close=${close} wide><div class="help-columns"><section><h3>Everywhere</h3>${list(GENERAL)}<h3>In tables</h3>${list(TABLES)}<h3>On the time line</h3>${list(TIMES)}</section>
    <section><h3>Go to</h3>${list(Object.values(SCREENS).filter(it => it.for.includes(role)).map(({ key, word }) => [`g ${key}`, word]))}</section></div><//>`;
}
