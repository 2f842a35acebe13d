// Signing in with a key, which is sent once, or at the single sign-on issuer. The session is a cookie that scripts
// cannot read.
import { html, useEffect, useState } from '../lib/view.js';
import { BASE, get, goOnWithoutKey, session, signIn, whoAmI } from '../lib/api.js';
import { keepPlace, route } from '../lib/route.js';
import { clean } from '../lib/text.js';
import { Button, useFocus } from '../parts/bits.js';
import { FailureLine } from '../parts/dialog.js';
import { Icon } from '../parts/icons.js';

/** Messages for the reasons in the URL after a failed sign-in at the issuer. */
const FAILED = {
  denied: 'The issuer did not sign you in, or you cancelled.',
  unknown: 'The sign-in took more than ten minutes, or was started in another browser. Sign in again.',
  no_group: 'You are signed in there, but none of your groups may use this pool. Ask an administrator to add one.',
  unavailable: 'The pool cannot reach the issuer at the moment. Try again later, or sign in with a key.',
  refused: 'The pool did not accept the issuer’s response. The server log has the reason.',
  too_many: 'Too many attempts to sign in failed from your address. Try again in a minute.',
};

export function SignIn({ isEnded }) {
  const { state, who, failure: unreachable } = session.use(), { screen, query } = route.use();
  const [issuer, setIssuer] = useState(null);
  useEffect(() => {
    let over = false;
    get('/session/ways').then(it => { if (!over) setIssuer(it.sign_on); }, () => { /* A key still works. */ });
    return () => { over = true; };
  }, []);
  const failed = screen === 'sign-on' ? FAILED[query.failed] : null;
  const [key, setKey] = useState(''), [busy, setBusy] = useState(false), [failure, setFailure] = useState(null), input = useFocus();
  const submit = async event => {
    event.preventDefault();
    const text = key.trim();
    if (!/^[\x21-\x7e]+$/.test(text)) { setFailure({ message: text ? 'A key has no spaces or special characters. Copy it again.' : 'Enter a key first.' }); input.current?.focus(); return; }
    setBusy(true);
    setFailure(null);
    try { await signIn(text); } catch (error) { setFailure(error); setBusy(false); input.current?.focus(); }
  };
  if (state === 'unknown') {
    return html`<main class="sign-in"><div class="sign-card"><h1>model-pool</h1>${unreachable ? html`<p class="failure" role="alert"><${Icon} name="alert" /><span>${clean(unreachable.message)}</span></p><p><${Button} kind="main" onClick=${whoAmI}>Try again<//></p>` : html`<p class="soft" role="status">Connecting…</p>`}</div></main>`;
  }
  return html`<main class="sign-in"><form class="sign-card" onSubmit=${submit}><h1>${isEnded ? 'Your session has ended' : 'Sign in to model-pool'}</h1>
    <p class="soft">${isEnded ? 'Sign in again to continue.' : 'Administrators and viewers see the pool; with an ordinary key you see your own models.'}</p>
    ${failed && html`<p class="failure" role="alert"><${Icon} name="alert" /><span>${failed}</span></p>`}
    ${issuer && html`<a class="button main sign-on" href=${`${BASE}/session/sign-on`} onClick=${keepPlace}>Sign in at ${clean(issuer)}</a><p class="sign-or soft" aria-hidden="true">or</p>`}
    <div class="field"><label for="key">Key</label><input id="key" ref=${input} type="password" autocomplete="current-password" spellcheck=${false} placeholder="mp-…" value=${key} onInput=${event => setKey(event.currentTarget.value)} aria-invalid=${String(Boolean(failure))} aria-describedby="key-help" />
      <p class="help" id="key-help">The first admin key was written on the server when it started: <code>admin.key</code> in its data folder, and <code>admin-client keys create</code> makes others.</p></div>
    ${failure && html`<${FailureLine} failure=${failure} />`}<${Button} kind=${issuer ? '' : 'main'} type="submit" busy=${busy}>${issuer ? 'Sign in with the key' : 'Sign in'}<//>
    ${who?.by === 'nothing' && html`<p class="soft">You need no key to use models from here: <button type="button" class="text-button" onClick=${goOnWithoutKey}>continue without one</button>.</p>`}</form></main>`;
}
