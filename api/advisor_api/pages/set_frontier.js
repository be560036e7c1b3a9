// Every way that was looked at: what it saves against what the slowest job pays.

import { chart } from "./chart.js";
import { number } from "./numbers.js";
import { ticks } from "./scale.js";
import { slowest, tail } from "./set_view.js";

export function frontier(view, onpick) {
  const shown = view.options.map((option) => mark(view, option)).filter((one) => Number.isFinite(one.y));
  const kept = shown.filter((one) => one.option.violations.length === 0);
  const measured = view.measured.map((point) => ({ x: 100 * point.energy_saved, y: measuredTail(view, point), tone: "a" })).filter((one) => Number.isFinite(one.y));
  const steps = ticks(Math.min(...[...shown, ...measured].map(({ x }) => x)), Math.max(...[...shown, ...measured].map(({ x }) => x)), 6);
  const drawn = chart({
    title: view.serves ? "p99 of the slowest server" : "Speed of the slowest job",
    unit: view.serves ? "ms" : "% of alone",
    x: { label: "energy saved for the same work, %", domain: [steps[0], steps.at(-1)], ticks: steps },
    series: [
      { tone: "a", name: "", points: best(view, kept), dots: false, apart: kept },
      { tone: "b", square: true, name: "", points: [], apart: shown.filter((one) => one.option.violations.length > 0) },
    ],
    measured,
    nowText: (value) => number(value),
    onpick: (place) => onpick(near(shown, place).option),
    alt: "The numbers are in the table of all ways.",
  });
  const better = view.serves ? "lower" : "higher";
  return {
    figure: drawn.figure,
    explained: `Right saves more, ${better} is kinder to the slowest. Round marks keep every limit, and the line goes through the best of them; square ones break one. Hollow marks were measured. Press a mark to choose its way.`,
    show: (option) => {
      const at = shown.find((one) => one.option === option);
      drawn.now(at ? { x: at.x, key: at.key } : null);
    },
  };
}

function mark(view, option) {
  const y = view.serves ? (option.sharing === "exclusive" ? NaN : (tail(option)?.value ?? NaN)) : 100 * slowest(option).speed.value;
  return { x: 100 * option.energy_saved.value, y, key: option.split, option };
}

function measuredTail(view, { jobs }) {
  if (view.serves) return Math.max(...jobs.map((job) => job.p99).filter(Number.isFinite));
  return 100 * Math.min(...jobs.map((job) => job.speed));
}

// Those that no other way beats in both, by what they save.
function best({ serves }, marks) {
  const kinder = (p, q) => (serves ? p.y < q.y : p.y > q.y);
  return marks.filter((one) => !marks.some((other) => other.x > one.x && kinder(other, one))).sort((p, q) => p.x - q.x);
}

function near(marks, { x, y }) {
  const spread = (pick) => Math.max(...marks.map(pick)) - Math.min(...marks.map(pick)) || 1;
  const [wide, high] = [spread((one) => one.x), spread((one) => one.y)];
  const gap = (one) => Math.hypot((one.x - x) / wide, (one.y - y) / high);
  return marks.reduce((least, one) => (gap(one) < gap(least) ? one : least));
}
