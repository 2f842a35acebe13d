// Assigns each model a hue, used everywhere; lightness and saturation come from the theme. The hue derives from the name;
// if two of a few models would look alike, one of them moves into the largest gap between the others.

const suggested = new Map(), given = new Map();

function hash(name) {
  let found = 2_166_136_261;
  for (const letter of String(name)) found = Math.imul(found ^ letter.codePointAt(0), 16_777_619);
  // The finalizer of MurmurHash3, which spreads similar names.
  found = Math.imul(found ^ (found >>> 16), 0x85eb_ca6b);
  found = Math.imul(found ^ (found >>> 13), 0xc2b2_ae35);
  return (found ^ (found >>> 16)) >>> 0;
}

function suggestion(name) {
  if (!suggested.has(name)) suggested.set(name, hash(name) % 360);
  return suggested.get(name);
}

const apart = (one, other) => { const by = Math.abs(one - other) % 360; return Math.min(by, 360 - by); };

/** With more models, hues cannot be distinguished. */
const MOST = 24;

/** Distributes hues among the catalogue's models. The result does not depend on their order. */
export function divide(names) {
  if (names.length === given.size && names.every(name => given.has(name))) return;
  given.clear();
  if (names.length > MOST) return;
  const least = Math.min(45, 360 / names.length * 0.6), taken = [];
  for (const name of [...names].sort((one, other) => hash(one) - hash(other) || (one < other ? -1 : 1))) {
    let hue = suggestion(name);
    if (taken.some(other => apart(hue, other) < least)) {
      const around = [...taken].sort((one, other) => one - other), gap = nth => (around[(nth + 1) % around.length] - around[nth] + 360) % 360 || 360;
      const widest = around.reduce((best, _, nth) => gap(nth) > gap(best) ? nth : best, 0);
      hue = Math.round(around[widest] + gap(widest) / 2) % 360;
    }
    taken.push(hue);
    given.set(name, hue);
  }
}

/** A hue from 0 to 359. */
export const hue = name => given.get(name) ?? suggestion(name);
