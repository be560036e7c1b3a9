// Where things of a chart stand: a number line, and beside it places ("slots") for what has no
// number, such as sharing without limits.

import { linear, ticks, tickText } from "./scale.js";

const HEIGHT = 232;
const TOP = 22;
const BOTTOM = 44;
const RIGHT = 14;
const NARROW = 420;
const LETTER = 6.6;

// How far beyond all values an axis follows ranges, in heights of the values: one long whisker
// would make every line flat. What is beyond is cut off at the edge.
const BEYOND = 0.5;

export function place(spec, width) {
  const levels = ticks(...extent(spec), 4);
  const texts = levels.map(tickText);
  const left = 10 + LETTER * Math.max(...texts.map((text) => text.length));
  const slots = spec.slots ?? [];
  const slotWidth = width < NARROW ? 44 : 64;
  const right = width - RIGHT - slots.length * slotWidth;
  const x = linear(spec.x.domain, [left + 6, right - 8]);
  const onPaper = linear([levels[0], levels.at(-1)], [HEIGHT - BOTTOM, TOP]);
  const y = (value) => Math.min(Math.max(onPaper(value), TOP), HEIGHT - BOTTOM);
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
    valueAt: onPaper.invert,
    slot,
    slots,
    levels: levels.map((level, i) => ({ level, text: texts[i] })),
    narrow: right - left < 260,
    at: (spot) => (spot.slot ? slot(spot.slot) : x(spot.x)),
  };
}

// Smallest and largest of all values, and of their ranges as far as they are not much longer.
function extent(spec) {
  const spots = spec.series.flatMap((line) => [...line.points, ...(line.apart ?? []), ...Object.values(line.slots ?? {})]);
  const values = [...spots.map((spot) => spot.y), ...(spec.measured ?? []).map((spot) => spot.y)];
  if (spec.limit) values.push(spec.limit.y);
  const [low, high] = ends(values.filter(Number.isFinite));
  const room = BEYOND * (high - low || Math.abs(high) || 1);
  const ranges = [...spots, ...(spec.errors ?? [])].flatMap((spot) => [spot.low, spot.high]).filter(Number.isFinite);
  const [least, most] = ends([low, high, ...ranges]);
  const shown = [Math.max(least, low - room), Math.min(most, high + room)];
  return spec.fromZero === false ? shown : [Math.min(0, shown[0]), shown[1] || 1];
}

function ends(values) {
  return values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
}
