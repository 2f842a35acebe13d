// A virtualized table. All rows have the same height; arrow keys move, Enter opens, Space selects.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../lib/view.js';
import { Icon } from './icons.js';

const SPARE = 8;

/**
 * Keeps rows in place while the pointer or the keyboard's focus is in the table's body. `hold.by` names the reader's choice of
 * order; another choice takes effect immediately. `hold.find(name)` returns the row of a name that the list no longer has.
 * Returns the rows to draw, where a row that no longer exists is `{ gone: name }`, and whether the list has another order by now.
 */
function useHeldRows(rows, id, hold, body) {
  const [, redraw] = useState(0), kept = useRef(null), drawn = useRef([]), isOver = useRef(false);
  useEffect(() => {
    const element = body.current;
    if (!hold || !element) return undefined;
    const isHeld = () => isOver.current || element.contains(document.activeElement) && document.activeElement.matches(':focus-visible') || element.querySelector('[aria-expanded="true"]') !== null;
    const look = () => {
      if (isHeld() === Boolean(kept.current)) return;
      kept.current = isHeld() ? { by: drawn.current.by, names: drawn.current.names } : null;
      redraw(count => count + 1);
    };
    const enter = () => { isOver.current = true; look(); }, leave = () => { isOver.current = false; look(); };
    // At `focusout`, the focus has not reached the next element yet.
    const soon = () => setTimeout(look);
    const heard = [['pointerenter', enter], ['pointerleave', leave], ['pointercancel', leave], ['focusin', look], ['focusout', soon]];
    for (const [name, act] of heard) element.addEventListener(name, act);
    // A press outside closes a row's menu.
    addEventListener('pointerup', soon);
    return () => {
      for (const [name, act] of heard) element.removeEventListener(name, act);
      removeEventListener('pointerup', soon);
    };
  }, [Boolean(hold)]);
  const names = rows.map(id);
  if (kept.current && kept.current.by !== hold.by) kept.current = { by: hold.by, names };
  let shown = rows, isBehind = false;
  if (kept.current) {
    const current = new Map(rows.map(row => [id(row), row]));
    shown = kept.current.names.map(name => current.get(name) ?? hold.find?.(name) ?? { gone: name });
    isBehind = names.length !== kept.current.names.length || names.some((name, nth) => name !== kept.current.names[nth]);
  }
  drawn.current = { by: hold?.by, names: kept.current?.names ?? names };
  return [shown, isBehind];
}

/**
 * `columns`: {id, title, cell(row), sort?, right?, grow?, hide?}. `hide` is the width in pixels below which the column is left out.
 * `rows` are sorted already; `id(row)` names one. `chosen` is a Set or undefined. `hold` is for lists that change while they are read.
 */
export function Table({ label, columns, rows: sorted, id: nameOf, rowHeight = 44, sort, onSort, chosen, onChoose, onOpen, opened, empty, rowTone, hold }) {
  const frame = useRef(null), body = useRef(null), id = row => row.gone ?? nameOf(row), [rows, isBehind] = useHeldRows(sorted, nameOf, hold, body), [range, setRange] = useState([0, 40]), [width, setWidth] = useState(innerWidth), [at, setAt] = useState(0);
  const look = () => {
    const element = body.current;
    if (!element) return;
    const top = element.getBoundingClientRect().top, first = Math.max(0, Math.floor(-top / rowHeight) - SPARE);
    const last = Math.min(rows.length, Math.ceil((innerHeight - top) / rowHeight) + SPARE);
    setRange(before => before[0] === first && before[1] === last ? before : [first, Math.max(first, last)]);
  };
  useLayoutEffect(look, [rows.length, rowHeight]);
  useEffect(() => {
    let asked = 0;
    const soon = () => { cancelAnimationFrame(asked); asked = requestAnimationFrame(look); };
    const sizes = new ResizeObserver(([{ contentRect }]) => { setWidth(contentRect.width); soon(); });
    sizes.observe(frame.current);
    addEventListener('scroll', soon, { passive: true, capture: true });
    return () => { sizes.disconnect(); removeEventListener('scroll', soon, { capture: true }); cancelAnimationFrame(asked); };
  }, [rows.length, rowHeight]);
  const shown = columns.filter(it => !it.hide || width >= it.hide);
  const template = [chosen && '36px', ...shown.map(it => it.width ?? (it.grow ? `minmax(${it.least ?? 120}px, ${it.grow}fr)` : 'max-content'))].filter(Boolean).join(' ');
  const focusRow = nth => {
    const to = Math.max(0, Math.min(rows.length - 1, nth));
    setAt(to);
    const element = body.current, top = element.getBoundingClientRect().top + to * rowHeight;
    if (top < 130) scrollBy(0, top - 130);
    else if (top + rowHeight > innerHeight - 70) scrollBy(0, top + rowHeight - innerHeight + 70);
    requestAnimationFrame(() => { look(); requestAnimationFrame(() => element.querySelector(`[data-nth="${to}"]`)?.focus({ preventScroll: true })); });
  };
  const onKey = event => {
    if (event.target.closest('input, select, textarea') && event.key !== 'Escape') return;
    const onRow = event.target.hasAttribute('data-nth'), page = Math.floor(innerHeight / rowHeight) - 4;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, j: at + 1, k: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined && onRow && !event.ctrlKey && !event.metaKey) { event.preventDefault(); focusRow(to); }
    if (event.key === 'Enter' && onRow && onOpen && rows[at] && !rows[at].gone) { event.preventDefault(); onOpen(rows[at]); }
    if (event.key === ' ' && onRow && chosen && rows[at] && !rows[at].gone) { event.preventDefault(); onChoose(toggled(chosen, id(rows[at]))); }
  };
  const present = rows.filter(row => !row.gone), all = chosen && present.length > 0 && present.every(row => chosen.has(id(row)));
  const cell = (content, column, extra = {}) => html`<div role="cell" key=${column.id} class=${column.right ? 'cell right' : 'cell'} ...${extra}>${content}</div>`;
  return html`<div class="table-frame" ref=${frame}>${isBehind && html`<p class="table-held"><span role="status" title="Rows keep their places while the pointer or the keyboard's focus is on them">The order has changed; rows move when you leave the table</span></p>`}<div class="table" role="table" aria-label=${label} aria-rowcount=${rows.length + 1} style=${{ '--columns': template, '--row': `${rowHeight}px` }} onKeyDown=${onKey}>
    <div role="rowgroup" class="table-head"><div role="row" aria-rowindex="1" class="table-row">
      ${chosen && html`<div role="columnheader" class="cell"><input type="checkbox" aria-label="Choose all" checked=${all} onChange=${() => onChoose(all ? new Set() : new Set(present.map(id)))} /></div>`}
      ${shown.map(column => {
        const isSorted = sort?.by === column.id;
        return html`<div role="columnheader" key=${column.id} class=${column.right ? 'cell right' : 'cell'} aria-sort=${isSorted ? sort.down ? 'descending' : 'ascending' : undefined}>${
          column.sort && onSort ? html`<button type="button" class="sort" onClick=${() => onSort({ by: column.id, down: isSorted ? !sort.down : Boolean(column.first) })}>${column.title}${isSorted && html`<span class=${sort.down ? 'sorted' : 'sorted up'}><${Icon} name="down" size=${10} /></span>`}</button>`
            : column.quiet ? html`<span class="quiet">${column.title}</span>` : column.title}</div>`;
      })}</div></div>
    <div role="rowgroup" class="table-body" ref=${body} style=${{ height: `${rows.length * rowHeight}px` }}>${rows.slice(range[0], range[1]).map((row, nth) => {
      const index = range[0] + nth, name = id(row);
      if (row.gone) return html`<div role="row" key=${name} aria-rowindex=${index + 2} class="table-row gone" data-nth=${index} tabindex="-1" style=${{ top: `${index * rowHeight}px` }}><div role="cell" class="cell faint">No longer in this list</div></div>`;
      return html`<div role="row" key=${name} aria-rowindex=${index + 2} class="table-row" data-nth=${index} tabindex=${index === Math.min(at, rows.length - 1) ? 0 : -1} data-tone=${rowTone?.(row)}
          aria-selected=${chosen ? String(chosen.has(name)) : undefined} data-open=${opened === name ? 'yes' : undefined} style=${{ top: `${index * rowHeight}px` }}
          onFocus=${event => { if (event.target === event.currentTarget) setAt(index); }}
          onClick=${event => { if (onOpen && !event.target.closest('a, button, input, select, label')) onOpen(row); }}>
        ${chosen && html`<div role="cell" class="cell"><input type="checkbox" tabindex="-1" aria-label=${`Choose ${name.slice(0, 100)}`} checked=${chosen.has(name)} onChange=${() => onChoose(toggled(chosen, name))} /></div>`}
        ${shown.map(column => cell(column.cell(row, width), column))}</div>`;
    })}</div></div>${rows.length === 0 && empty}</div>`;
}

function toggled(chosen, name) {
  const next = new Set(chosen);
  if (!next.delete(name)) next.add(name);
  return next;
}
