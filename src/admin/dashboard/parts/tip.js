// A tooltip for the hovered or focused element, drawn once above the page. Escape hides it.
import { html, useLayoutEffect, useRef } from '../lib/view.js';
import { createStore } from '../lib/store.js';

const tip = createStore({ body: null, at: null });
let timer = 0;

export function hideTip() {
  clearTimeout(timer);
  if (tip.get().body) tip.set({ body: null, at: null });
}

/** Attributes for an element with a tooltip, rendered by `body`. */
export function explains(body) {
  const show = (event, wait) => {
    const element = event.currentTarget;
    clearTimeout(timer);
    timer = setTimeout(() => { if (element.isConnected) tip.set({ body, at: element.getBoundingClientRect() }); }, wait);
  };
  return {
    onMouseEnter: event => show(event, tip.get().body ? 0 : 120), onMouseLeave: hideTip,
    onFocus: event => { if (event.currentTarget.matches(':focus-visible')) show(event, 0); }, onBlur: hideTip,
  };
}

addEventListener('keydown', event => { if (event.key === 'Escape') hideTip(); }, true);
addEventListener('scroll', hideTip, true);
addEventListener('hashchange', hideTip);

export function Tips() {
  const { body, at } = tip.use(), it = useRef(null);
  useLayoutEffect(() => {
    const element = it.current;
    if (!element || !at) return;
    const { width, height } = element.getBoundingClientRect(), gap = 8;
    const left = Math.min(Math.max(gap, at.left + at.width / 2 - width / 2), innerWidth - width - gap);
    const below = at.bottom + gap + height < innerHeight;
    element.style.left = `${left}px`;
    element.style.top = `${below ? at.bottom + gap : Math.max(gap, at.top - height - gap)}px`;
  });
  return body ? html`<div class="tip" ref=${it} aria-hidden="true">${body()}</div>` : null;
}
