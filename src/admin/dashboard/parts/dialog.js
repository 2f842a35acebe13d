// Dialogs, one at a time, based on <dialog>, which traps and restores the focus and closes on Escape.
import { html, useEffect, useRef, useState } from '../lib/view.js';
import { createStore } from '../lib/store.js';
import { clean } from '../lib/text.js';
import { Button, IconButton } from './bits.js';
import { Icon } from './icons.js';

const shown = createStore({ body: null, key: 0 });

/** `body` is a component that receives `close`. */
export const openDialog = (body, props = {}) => shown.set(({ key }) => ({ body, props, key: key + 1 }));
export const closeDialog = () => shown.set({ body: null });
export const isOpen = () => shown.get().body !== null;

export function Dialogs() {
  const { body: Body, props, key } = shown.use();
  return Body ? html`<${Body} key=${key} close=${closeDialog} ...${props} />` : null;
}

export function Dialog({ title, close, wide, side, children, foot, label }) {
  const it = useRef(null);
  useEffect(() => {
    const dialog = it.current, before = document.activeElement;
    if (!dialog.open) dialog.showModal();
    const first = dialog.querySelector('[data-first]');
    first?.focus();
    // A scrollable body must be reachable by keyboard, even without focusable content.
    const body = dialog.querySelector('.dialog-body');
    const look = () => { if (body.scrollHeight > body.clientHeight) body.tabIndex = 0; else body.removeAttribute('tabindex'); };
    const sizes = new ResizeObserver(look), content = new MutationObserver(look);
    sizes.observe(body);
    content.observe(body, { childList: true, subtree: true });
    return () => {
      sizes.disconnect();
      content.disconnect();
      if (dialog.open) dialog.close();
      if (before?.isConnected && before !== document.body) before.focus();
    };
  }, []);
  return html`<dialog ref=${it} class=${`dialog ${wide ? 'wide' : ''} ${side ? 'side' : ''}`} aria-label=${label ?? title}
      onCancel=${event => { event.preventDefault(); close(); }} onMouseDown=${event => { if (event.target === it.current) close(); }}>
    <div class="dialog-box"><header class="dialog-head"><h2>${title}</h2><${IconButton} icon="close" label="Close" onClick=${close} /></header>
    <div class="dialog-body">${children}</div>${foot && html`<footer class="dialog-foot">${foot}</footer>`}</div></dialog>`;
}

/** Confirms an order: `children` describe it, and `action` names the effect. Stays open if `act` resolves to false, and shows its failure. */
export function Confirm({ title, close, children, action, danger, act, disabled, wide }) {
  const [busy, setBusy] = useState(false), [failure, setFailure] = useState(null);
  const carryOut = async () => {
    setBusy(true);
    setFailure(null);
    try { if (await act() === false) setBusy(false); else close(); } catch (error) { setFailure(error); setBusy(false); }
  };
  return html`<${Dialog} title=${title} close=${close} wide=${wide} foot=${html`<${Button} onClick=${close} data-first=${danger || undefined}>Cancel<//>
      <${Button} kind=${danger ? 'danger' : 'main'} busy=${busy} disabled=${disabled} onClick=${carryOut} data-first=${!danger || undefined}>${action}<//>`}>
    ${children}${failure && html`<${FailureLine} failure=${failure} />`}<//>`;
}

export const FailureLine = ({ failure }) => html`<p class="failure" role="alert"><${Icon} name="alert" /><span>${clean(failure.message)}</span></p>`;

/** A labelled input with its `error`. */
export function Field({ label, help, error, children, id }) {
  return html`<div class="field"><label for=${id}>${label}</label>${children}${help && html`<p class="help" id=${id + '-help'}>${help}</p>`}${
    error && html`<p class="field-error" role="alert">${error}</p>`}</div>`;
}
