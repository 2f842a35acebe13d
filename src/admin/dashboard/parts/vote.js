// Votes for the best answer once all are complete, and shows the effect on the ratings.
import { html, useState } from '../lib/view.js';
import { session } from '../lib/api.js';
import { link } from '../lib/route.js';
import { clean } from '../lib/text.js';
import { letter, sendVote } from '../lib/votes.js';
import { Button, Name } from './bits.js';

const signed = number => `${number < 0 ? '−' : '+'}${Math.abs(number).toFixed(1)}`;

/** `onVote(answer)` receives the server's response. */
export function Vote({ comparison, onVote }) {
  const [busy, setBusy] = useState(false), [failure, setFailure] = useState(null), by = session.use(it => it.who?.by);
  const { order, isHidden, vote } = comparison;
  if (vote) return html`<section class="vote" aria-label="Your vote" role="status"><p>${vote.winner === null ? 'A tie.' : html`You chose <b><${Name} of=${vote.winner} most=${50} /></b>.`}</p>
    <ul>${vote.ratings.map(it => html`<li key=${it.model}><${Name} of=${it.model} most=${40} /> <span class="figure">${Math.round(it.rating)}</span> <span class="figure soft">(${signed(it.change)})</span></li>`)}</ul>
    <a class="text-button" href=${link('leaderboard')}>Leaderboard</a></section>`;
  if (by === 'nothing') return html`<section class="vote" aria-label="Your vote"><p class="soft">Sign in with a key to vote for the best answer.</p></section>`;
  const choose = async winner => {
    setBusy(true);
    setFailure(null);
    try { onVote(await sendVote(comparison, winner)); } catch (error) { setFailure(error); }
    setBusy(false);
  };
  const sides = matchMedia('(max-width: 660px)').matches ? ['Upper', 'Lower'] : ['Left', 'Right'];
  const word = (model, place) => order.length === 2 ? `${sides[place]} is better` : isHidden ? `${letter(place)} is best` : html`<${Name} of=${model} most=${30} /> is best`;
  return html`<section class="vote" aria-label="Your vote"><p>Which answer is ${order.length === 2 ? 'better' : 'best'}?</p><p class="vote-choices">
    ${order.map((model, place) => html`<${Button} key=${model} disabled=${busy} onClick=${() => choose(model)}>${word(model, place)}<//>`)}<${Button} disabled=${busy} onClick=${() => choose(null)}>Tie<//></p>
    ${failure && html`<p class="bad-words" role="alert">${clean(failure.message)}</p>`}</section>`;
}
