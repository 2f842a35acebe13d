// A button that opens a menu. Arrow keys move, Escape closes it and restores the focus.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../lib/view.js';
import { Icon } from './icons.js';

/** `items`: [word, action, {icon, danger, disabled, why}] or null for a line. */
export function Menu({ label, icon = 'more', items, children, kind = 'icon-button' }) {
  const [at, setAt] = useState(null);
  const button = useRef(null), list = useRef(null);
  const close = back => { setAt(null); if (back) button.current?.focus(); };
  useEffect(() => {
    if (!at) return;
    const away = event => { if (!list.current?.contains(event.target) && !button.current?.contains(event.target)) close(false); };
    const shut = () => close(false);
    document.addEventListener('pointerdown', away, true);
    addEventListener('scroll', shut, true);
    addEventListener('resize', shut);
    return () => { document.removeEventListener('pointerdown', away, true); removeEventListener('scroll', shut, true); removeEventListener('resize', shut); };
  }, [at]);
  useLayoutEffect(() => {
    const element = list.current;
    if (!element || !at) return;
    const { width, height } = element.getBoundingClientRect();
    element.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
    element.style.top = `${at.bottom + height + 12 < innerHeight ? at.bottom + 4 : Math.max(8, at.top - height - 4)}px`;
    element.querySelector('[role="menuitem"]:not([aria-disabled="true"])')?.focus();
  }, [at]);
  const onKey = event => {
    const rows = [...list.current.querySelectorAll('[role="menuitem"]')], now = rows.indexOf(document.activeElement);
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); rows[(to + rows.length) % rows.length]?.focus(); }
    if (event.key === 'Escape' || event.key === 'Tab') { event.preventDefault(); close(true); }
    event.stopPropagation();
  };
  return html`<span class="menu"><button type="button" ref=${button} class=${kind} aria-label=${label} title=${children ? undefined : label} aria-haspopup="menu" aria-expanded=${String(Boolean(at))}
      onClick=${event => { event.stopPropagation(); setAt(at ? null : button.current.getBoundingClientRect()); }}>${children ?? html`<${Icon} name=${icon} />`}</button>
    ${at && html`<div class="menu-list" role="menu" aria-label=${label} ref=${list} onKeyDown=${onKey}>${items.map((item, nth) => item === null ? html`<hr key=${nth} />`
      : html`<button type="button" role="menuitem" tabindex="-1" key=${nth} class=${item[2]?.danger ? 'danger' : ''} aria-disabled=${item[2]?.disabled ? 'true' : undefined} title=${item[2]?.disabled ? item[2].why : undefined}
          onClick=${event => { event.stopPropagation(); if (item[2]?.disabled) return; close(true); item[1](); }}>${item[2]?.icon && html`<${Icon} name=${item[2].icon} />`}<span>${item[0]}</span></button>`)}</div>`}</span>`;
}
