// Each model has a hue of its own, the same in every place and at every visit. Lightness and strength belong to the theme.

const hues = new Map();

/** 0 to 359, from the name alone. */
export function hue(name) {
  if (!hues.has(name)) {
    let hash = 2_166_136_261;
    for (const letter of String(name)) hash = Math.imul(hash ^ letter.codePointAt(0), 16_777_619);
    hash ^= hash >>> 15;
    // Steps of the golden angle keep neighbours in the hash apart.
    hues.set(name, Math.round(((hash >>> 0) % 1021) * 137.508) % 360);
  }
  return hues.get(name);
}
