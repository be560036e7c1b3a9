// The figures of a model's evaluation, in words. All are of jobs that it had not seen.

import { table } from "./elements.js";
import { moment, number, percent } from "./numbers.js";

const plain = (value) => `${number(value)}\u00a0%`;

// What is said first of a model: [key, title, value in words, what it means].
export const FIGURES = [
  ["oracle_energy_efficiency_percent", "More energy than the best split", (value) => percent(100 / value - 1), "on average, where the best one is known"],
  ["rate_mean_error_percent", "Speeds are off by", plain, "on average"],
  ["power_mean_error_percent", "Power is off by", plain, "on average"],
  ["rate_coverage_percent", "Speeds within the range", plain, "of those that were measured"],
];

const MORE = {
  oracle_energy_efficiency: "Work per joule at the chosen split, of the best measured one",
  oracle_throughput_per_watt: "Speeds per watt at the chosen split, of the best measured one",
  oracle_raw_throughput_per_watt: "Rates per watt at the chosen split, of the best measured one",
  rate: "Error of speeds at a split",
  power: "Error of power at a split",
  uncapped_rate: "Error of speeds without limits",
  uncapped_power: "Error of power without limits",
};

const ENDS = {
  "": "mean",
  _p10: "a tenth of the choices is below",
  _worst: "worst choice",
  _mean_error: "mean",
  _median_error: "half of them are below",
};

const COVERED = { rate: "Speeds within their range", power: "Power within its range", efficiency: "Energy within its range" };

// A figure in words; one that is not known here keeps its name.
export function words(key) {
  const name = key.replace(/_percent$/, "");
  const covered = COVERED[name.replace(/_coverage$/, "")];
  if (covered && name.endsWith("_coverage")) return covered;
  const end = Object.keys(ENDS).findLast((one) => name.endsWith(one) && name.slice(0, name.length - one.length) in MORE);
  return end === undefined ? key.replaceAll("_", " ") : `${MORE[name.slice(0, name.length - end.length)]}: ${ENDS[end]}`;
}

// What the model's splits save against halves, by its evaluation by job; null: nothing is said.
export function savedOverHalves(jobs) {
  const bars = jobs.map(({ bars: of }) => of["energy-efficiency"]).filter((bar) => Number.isFinite(bar?.gain_percent));
  const count = bars.reduce((sum, bar) => sum + bar.choices, 0);
  const gain = bars.reduce((sum, bar) => sum + bar.choices * bar.gain_percent, 0) / count / 100;
  return count ? 1 - 1 / (1 + gain) : null;
}

// When which model became the champion.
export function changes(history) {
  const columns = [
    { name: "When", cell: (change) => moment(change.at) },
    { name: "What", cell: (change) => (change.action === "promote" ? "promoted" : "rolled back") },
    { name: "New champion", cell: (change) => change.version },
    { name: "Instead of", cell: (change) => change.replaced },
  ];
  return table("History of the champion", columns, history, { stacked: true });
}
