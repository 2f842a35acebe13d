// A comparison of models: its name, the order of its answers, and its vote.
import { post } from './api.js';

/** A name of 128 random bits; `crypto.randomUUID` is not available over plain HTTP. */
const newName = () => 'c-' + Array.from(crypto.getRandomValues(new Uint8Array(16)), it => it.toString(16).padStart(2, '0')).join('');

/** Shuffles uniformly. */
function shuffled(list) {
  const all = [...list], limit = 0x1_0000_0000;
  for (let last = all.length - 1; last > 0; last -= 1) {
    const most = limit - limit % (last + 1);
    let number = most;
    while (number >= most) [number] = crypto.getRandomValues(new Uint32Array(1));
    const at = number % (last + 1);
    [all[last], all[at]] = [all[at], all[last]];
  }
  return all;
}

/** `vote` is null until it is counted. A hidden comparison does not reveal which answer is from which model. */
export const newComparison = (models, isHidden) => ({ name: newName(), of: models.join('\n'), order: isHidden ? shuffled(models) : models, isHidden, vote: null });

/** Sends the vote; `winner` is null in a tie. */
export const sendVote = ({ name, order }, winner) => post('/votes', { comparison: name, models: order, ...(winner === null ? { tie: true } : { winner }) });

/** The label of an answer whose model is hidden. */
export const letter = place => `Answer ${'ABCD'[place]}`;
