// Signing in with a key. The key is sent once; what stays is a cookie that scripts cannot read.
import { html, useState } from '../lib/view.js';
import { goOnWithoutKey, session, signIn, whoAmI } from '../lib/api.js';
import { clean } from '../lib/text.js';
import { Button, useFocus } from '../parts/bits.js';
import { FailureLine } from '../parts/dialog.js';
import { Icon } from '../parts/icons.js';

export function SignIn({ isEnded }) {
  const { state, who, failure: unreachable } = session.use();
  const [key, setKey] = useState(''), [busy, setBusy] = useState(false), [failure, setFailure] = useState(null), input = useFocus();
  const submit = async event => {
    event.preventDefault();
    const text = key.trim();
    if (!/^[\x21-\x7e]+$/.test(text)) { setFailure({ message: text ? 'A key has no spaces and no special letters. Copy it again.' : 'Enter a key first.' }); input.current?.focus(); return; }
    setBusy(true);
    setFailure(null);
    try { await signIn(text); } catch (error) { setFailure(error); setBusy(false); input.current?.focus(); }
  };
  if (state === 'unknown') {
    return html`<main class="sign-in"><div class="sign-card"><h1>model-pool</h1>${unreachable ? html`<p class="failure" role="alert"><${Icon} name="alert" /><span>${clean(unreachable.message)}</span></p><p><${Button} kind="main" onClick=${whoAmI}>Try again<//></p>` : html`<p class="soft" role="status">Connecting…</p>`}</div></main>`;
  }
  return html`<main class="sign-in"><form class="sign-card" onSubmit=${submit}><h1>${isEnded ? 'Your session has ended' : 'Sign in to model-pool'}</h1>
    <p class="soft">${isEnded ? 'Sign in again to go on where you were.' : 'Administrators and viewers see the pool; with an ordinary key you see your own models.'}</p>
    <div class="field"><label for="key">Key</label><input id="key" ref=${input} type="password" autocomplete="current-password" spellcheck=${false} placeholder="mp-…" value=${key} onInput=${event => setKey(event.currentTarget.value)} aria-invalid=${String(Boolean(failure))} aria-describedby="key-help" />
      <p class="help" id="key-help">The first admin key was written on the server when it started: <code>admin.key</code> in its data folder, and <code>admin-client keys create</code> makes others.</p></div>
    ${failure && html`<${FailureLine} failure=${failure} />`}<${Button} kind="main" type="submit" busy=${busy}>Sign in<//>
    ${who?.by === 'nothing' && html`<p class="soft">You need no key to use models from here: <button type="button" class="text-button" onClick=${goOnWithoutKey}>go on without one</button>.</p>`}</form></main>`;
}
