// A chart of columns: one column for each step of time, made of parts.
import { html } from '../lib/view.js';
import { sum } from '../lib/device.js';
import { clock } from '../lib/text.js';

const WIDTH = 720, HEIGHT = 110;
export const figure = number => number.toLocaleString('en', { maximumFractionDigits: number < 10 ? 2 : 0 });

/**
 * `of` gives the parts of a step as state and value, from the bottom. `words` has the name of each state, which `legend` shows. `lines`
 * replaces the lines of a step's description.
 */
export function Columns({ title, word, step = 'hour', all, of, words = {}, legend = false, lines }) {
  const most = Math.max(...all.map(it => sum(of(it), ([, value]) => value))), width = WIDTH / all.length;
  const parts = lines ?? (it => of(it).filter(([, value]) => value > 0).map(([state, value]) => `${words[state] ?? word}: ${figure(value)}`));
  const column = (it, nth) => {
    let y = HEIGHT;
    return html`<g key=${it.at}><title>${[clock(it.at), ...parts(it)].join('\n')}</title><rect class="chart-hit" x=${nth * width} y="0" width=${width} height=${HEIGHT} />${of(it).map(([state, value]) => { const high = HEIGHT * value / (most || 1); y -= high; return html`<rect key=${state} class="chart-part" data-state=${state} x=${nth * width + width * 0.08} y=${y} width=${width * 0.84} height=${high} />`; })}</g>`;
  };
  return html`<figure class="chart"><figcaption><h2>${title}</h2><span class="soft figure">at most ${figure(most)} ${word}</span></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${title} by ${step}, at most ${figure(most)} ${word}`}>${all.map(column)}</svg>
    <div class="chart-words soft"><span>${clock(all[0].at)}</span><span>${clock(all.at(-1).at)}</span></div>
    ${legend && html`<ul class="account-legend soft small">${Object.entries(words).map(([state, name]) => html`<li key=${state}><span class="account-swatch" data-state=${state} aria-hidden="true"></span>${name}</li>`)}</ul>`}</figure>`;
}
