// The colour of a job: the same on every page, by its name.

import { svg } from "./elements.js";

const TONES = 12;

// Of the jobs of one drawing, names to tones. The factor spreads those that come with advisor; two that
// still meet are told apart.
export function jobTones(names) {
  const found = new Map();
  for (const name of [...new Set(names)].sort()) {
    let tone = [...name].reduce((sum, letter) => (14701 * sum + letter.codePointAt()) % 65521, 0) % TONES;
    for (let n = 0; n < TONES && [...found.values()].includes(tone); n += 1) tone = (tone + 5) % TONES;
    found.set(name, tone);
  }
  return (name) => `job-${found.get(name)}`;
}

// The mark of a colour in front of its name.
export function key(tone) {
  return svg("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { class: `fill tone-${tone}`, width: 10, height: 10, rx: 2 }));
}
