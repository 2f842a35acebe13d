// Each model has a hue of its own, the same in every place and at every visit. Lightness and strength belong to the theme.

const hues = new Map();

/** 0 to 359, from the name alone. */
export function hue(name) {
  if (!hues.has(name)) {
    let hash = 2_166_136_261;
    for (const letter of String(name)) hash = Math.imul(hash ^ letter.codePointAt(0), 16_777_619);
    // The last steps of MurmurHash3: names that differ in a few letters lie far apart.
    hash = Math.imul(hash ^ (hash >>> 16), 0x85eb_ca6b);
    hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2_ae35);
    hues.set(name, ((hash ^ (hash >>> 16)) >>> 0) % 360);
  }
  return hues.get(name);
}
