// A combobox for choosing a model by part of its name.
import { html, useEffect, useId, useMemo, useRef, useState } from '../lib/view.js';
import { live } from '../lib/live.js';
import { short } from '../lib/text.js';
import { State, ofModel } from './bits.js';

const MOST = 60;

export function ModelChoice({ label, value, onChange, models: given, clears }) {
  const pool = live.use(it => it.models), id = useId();
  const models = given ?? pool;
  const [text, setText] = useState(null), [at, setAt] = useState(0), box = useRef(null), list = useRef(null);
  const found = useMemo(() => {
    const words = (text ?? '').toLowerCase().split(/\s+/).filter(Boolean), rank = it => it.state === 'ready' ? 0 : it.state === 'cold' ? 2 : 1;
    return models.filter(it => words.every(word => it.model.toLowerCase().includes(word))).sort((one, other) => rank(one) - rank(other)).slice(0, MOST);
  }, [models, text]);
  const choose = model => { if (model) onChange(model); setText(clears ? '' : null); if (!clears) box.current?.blur(); setText(null); };
  const isOpen = text !== null;
  useEffect(() => { list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' }); }, [at, isOpen]);
  const onKey = event => {
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); if (!isOpen) setText(''); else setAt((to + found.length) % Math.max(1, found.length)); }
    if (event.key === 'Enter' && isOpen) { event.preventDefault(); choose(found[at]?.model); }
    if (event.key === 'Escape' && isOpen) { event.stopPropagation(); event.preventDefault(); setText(null); }
  };
  return html`<div class="combo"><label class="quiet" for=${id}>${label}</label><span class="combo-box" style=${value ? ofModel(value) : undefined}>${value && html`<span class="swatch" aria-hidden="true"></span>`}<input id=${id} ref=${box} role="combobox" aria-expanded=${String(isOpen)} aria-controls=${id + '-list'} aria-autocomplete="list"
      aria-activedescendant=${isOpen && found[at] ? `${id}-${at}` : undefined} autocomplete="off" spellcheck=${false} placeholder=${label} value=${isOpen ? text : short(value ?? '', 80)} onFocus=${() => { setText(''); setAt(0); }} onBlur=${() => setText(null)}
      onInput=${event => { setText(event.currentTarget.value); setAt(0); }} onKeyDown=${onKey} /></span>
    ${isOpen && html`<ul class="combo-list" role="listbox" id=${id + '-list'} aria-label=${label} ref=${list}>${found.map((it, nth) => html`<li key=${it.model} id=${`${id}-${nth}`} role="option" aria-selected=${String(nth === at)} onMouseDown=${event => { event.preventDefault(); choose(it.model); }} onMouseEnter=${() => setAt(nth)}>
      <span class="swatch" style=${ofModel(it.model)}></span><span class="grow clip">${short(it.model, 70)}</span>${it.state && html`<${State} of=${it.state} />`}</li>`)}${found.length === 0 && html`<li class="soft" role="option" aria-disabled="true" aria-selected="false">No matching model.</li>`}</ul>`}</div>`;
}
