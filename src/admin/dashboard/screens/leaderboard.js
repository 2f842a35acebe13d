// The models, rated by votes in the playground.
import { html, useEffect, useState } from '../lib/view.js';
import { get } from '../lib/api.js';
import { count } from '../lib/text.js';
import { link } from '../lib/route.js';
import { Clock, Empty, Head, Loading, Name, Problem } from '../parts/bits.js';
import { Table } from '../parts/table.js';

const READ_MS = 5000;

const COLUMNS = [
  { id: 'rank', title: 'Place', right: true, width: '64px', cell: it => html`<span class="figure">${it.rank}</span>` },
  { id: 'model', title: 'Model', grow: 3, least: 120, cell: it => html`<${Name} of=${it.model} />` },
  { id: 'rating', title: 'Rating', right: true, width: '80px', cell: it => html`<b class="figure">${Math.round(it.rating)}</b>` },
  { id: 'comparisons', title: 'Comparisons', right: true, width: '116px', hide: 480, cell: it => html`<span class="figure">${it.comparisons}</span>` },
  { id: 'results', title: 'Won, lost, tied', right: true, width: '140px', hide: 620, cell: it => html`<span class="figure">${it.wins} · ${it.losses} · ${it.ties}</span>` },
  { id: 'ratio', title: 'Win ratio', right: true, width: '90px', hide: 760, cell: it => html`<span class="figure">${it.win_ratio}</span>` },
  { id: 'voted', title: 'Last vote', width: '170px', hide: 900, cell: it => html`<${Clock} at=${it.voted_at} />` },
];

export function Leaderboard() {
  const [board, setBoard] = useState(null), [failure, setFailure] = useState(null);
  useEffect(() => {
    let over = false, timer = 0;
    const read = async () => {
      if (!document.hidden) {
        try {
          const it = await get('/leaderboard');
          if (!over) { setBoard(it); setFailure(null); }
        } catch (error) { if (!over) setFailure(error); }
      }
      if (!over) timer = setTimeout(read, READ_MS);
    };
    read();
    return () => { over = true; clearTimeout(timer); };
  }, []);
  const rows = board?.models ?? [];
  return html`<${Head} title="Leaderboard" about=${board ? `${count(rows.length, 'model')} with votes` : undefined}><a class="button" href=${link('playground')}>Compare models</a><//>
    ${failure && html`<${Problem} failure=${failure} />`}${!board && !failure && html`<${Loading} />`}
    ${board && html`<${Table} label="Leaderboard" columns=${COLUMNS} rows=${rows} id=${it => it.model} empty=${html`<${Empty} icon="leaderboard" title="No votes yet">Choose two models in the playground, ask them the same question, and vote for the better answer.<//>`} />
      ${rows.length > 0 && html`<p class="soft vote-words">The rating is Elo’s: every model begins at ${board.start}, and a vote between equals moves ${board.most_per_game / 2} points. A vote for a model that was behind moves more. The win ratio is Aviary’s, where 1000 is the average of three models.</p>`}`}`;
}
