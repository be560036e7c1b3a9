// Where things of a chart stand: a number line, and beside it places ("slots") for what has no
// number, such as sharing without limits.

import { linear, ticks, tickText } from "./scale.js";

const HEIGHT = 232;
const TOP = 22;
const BOTTOM = 44;
const RIGHT = 14;
const NARROW = 420;
const LETTER = 6.6;

export function place(spec, width) {
  const levels = ticks(...extent(spec), 4);
  const texts = levels.map(tickText);
  const left = 10 + LETTER * Math.max(...texts.map((text) => text.length));
  const slots = spec.slots ?? [];
  const slotWidth = width < NARROW ? 44 : 64;
  const right = width - RIGHT - slots.length * slotWidth;
  const x = linear(spec.x.domain, [left + 6, right - 8]);
  const y = linear([levels[0], levels.at(-1)], [HEIGHT - BOTTOM, TOP]);
  const slot = (key) => right + slotWidth * (slots.findIndex((s) => s.key === key) + 0.5);
  return {
    width,
    height: HEIGHT,
    top: TOP,
    bottom: HEIGHT - BOTTOM,
    left,
    right,
    x,
    y,
    slot,
    slots,
    levels: levels.map((level, i) => ({ level, text: texts[i] })),
    narrow: right - left < 260,
    at: (spot) => (spot.slot ? slot(spot.slot) : x(spot.x)),
  };
}

// Smallest and largest of all that is to be seen.
function extent(spec) {
  const values = spec.series.flatMap((line) => [
    ...line.points.flatMap(ends),
    ...Object.values(line.slots ?? {}).flatMap(ends),
  ]);
  values.push(...(spec.measured ?? []).map((spot) => spot.y));
  values.push(...(spec.errors ?? []).flatMap((bar) => [bar.low, bar.high]));
  if (spec.limit) values.push(spec.limit.y);
  const known = values.filter(Number.isFinite);
  const high = known.length ? Math.max(...known) : 1;
  const low = known.length ? Math.min(...known) : 0;
  return spec.fromZero === false ? [low, high] : [Math.min(0, low), high || 1];
}

function ends({ y, low, high }) {
  return [y, low ?? y, high ?? y];
}
