// From values to places on the paper.

// What may stick out above the last tick, in ticks: a hair's breadth is worth no empty quarter.
const SLACK = 0.06;

// Round numbers that enclose low..high, about `count` of them.
export function ticks(low, high, count = 5) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - SLACK);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

// A linear scale.
export function linear([from, to], [start, end]) {
  const slope = (end - start) / (to - from || 1);
  const scale = (value) => start + slope * (value - from);
  scale.invert = (place) => from + (place - start) / slope;
  return scale;
}

const big = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const small = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

// A tick as text.
export function tickText(value) {
  return Math.abs(value) >= 10000 ? big.format(value) : small.format(value);
}
