// The answer of the service as the page of a set needs it.

import { WRONG } from "./flags.js";
import { mean } from "./numbers.js";

export const DEFAULT_OBJECTIVE = "energy-efficiency";

// The words for each objective; `scale` makes per-watt values readable.
export const OBJECTIVES = {
  "energy-efficiency": { title: "Energy for the same work", unit: "alone / shared", scale: 1 },
  "throughput-per-watt": { title: "Sum of relative speeds per watt", unit: "per kW", scale: 1000 },
  "raw-throughput-per-watt": { title: "Sum of rates per watt", unit: "steps of both per J", scale: 1 },
  throughput: { title: "Sum of relative speeds", unit: "", scale: 1 },
  "energy-delay": { title: "Inverse energy-delay product", unit: "1/kW", scale: 1000 },
  "max-min": { title: "Speed of the slower job", unit: "of its full speed", scale: 1 },
};

export const SHARING_WORDS = { uncapped: "without limits", "time-sliced": "time-sliced", exclusive: "alone on a GPU" };

// Percent: shares are rounded to whole SMs.
const WHOLE_WITHIN = 1.6;

export function setView(given) {
  const { candidates: options } = given;
  const isPair = given.jobs.length === 2;
  const named = (split) => options.find((option) => option.split === split);
  const best = named(given.choice?.split ?? "exclusive");
  const way = named(given.call?.split) ?? best; // what the verdict is about
  return {
    given,
    options,
    isPair,
    names: given.jobs.map((one) => one.job),
    a: given.jobs[0].job,
    splits: options.filter((option) => option.sharing === "limited" && (!isPair || isWhole(option) || option === way)),
    best,
    way,
    serves: options.some((option) => option.sharing !== "exclusive" && tail(option)),
    measured: [],
  };
}

// The longest p99 of the servers among the jobs; null: none answers requests.
export function tail({ jobs }) {
  const known = jobs.map((job) => job.latency_p99_ms).filter(Boolean);
  return known.length ? known.reduce((worst, p99) => (p99.value > worst.value ? p99 : worst)) : null;
}

// On a GPU of its own each job runs as it does alone.
export function slowest({ jobs, sharing }) {
  if (sharing === "exclusive") return { job: jobs[0].job, speed: { value: 1 } };
  return jobs.reduce((worst, job) => (job.speed.value < worst.speed.value ? job : worst));
}

// Where an option stands on the charts over a share; two may have the same first share.
export function spot(option) {
  if (option.sharing !== "limited") return { slot: option.split };
  return { x: option.jobs[0].share_percent, key: option.split };
}

// Whether the shares are the whole GPU: only those lie on a line over one share.
export function isWhole(option) {
  return Math.abs(sum(shares(option)) - 100) < WHOLE_WITHIN;
}

// Measured points in the order of the jobs, with what options have: relative speeds, power, energy
// saved. Left out are those of failed jobs, which have no rates, and those with wrong results.
export function measuredOptions({ stored, bundled }, given) {
  const alone = given.jobs.map((job) => job.alone);
  return [...stored.map((point) => ({ ...point, own: true })), ...bundled]
    .filter((point) => point.power_w !== null && point.jobs.every(({ rate }) => rate !== null))
    .filter((point) => !WRONG.some((flag) => point.flags.includes(flag)))
    .map((point) => ({ ...point, jobs: inOrder(point.jobs, given) }))
    .map((point) => {
      const speeds = point.jobs.map(({ rate }, i) => rate / alone[i].rate);
      return {
        own: point.own,
        sharing: point.mode in SHARING_WORDS ? point.mode : "limited",
        shares: shares(point),
        isWhole: isWhole(point),
        jobs: point.jobs.map(({ rate, latency_p99_ms: p99 }, i) => ({ speed: speeds[i], rate, p99 })),
        power_w: point.power_w,
        energy_saved: 1 - point.power_w / sum(speeds.map((speed, i) => speed * alone[i].power_w)),
        stp: sum(speeds),
      };
    });
}

// Points have their jobs by name; copies of a job are alike.
function inOrder(jobs, given) {
  const left = [...jobs];
  return given.jobs.map(({ job }) => left.splice(left.findIndex((one) => one.job === job), 1)[0]);
}

function shares({ jobs }) {
  return jobs.map((job) => job.share_percent);
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function isAt(point, option) {
  if (option.sharing !== "limited" || point.sharing !== "limited") return point.sharing === option.split;
  return !option.split.includes(":low") && option.jobs.every((job, i) => Math.abs(job.share_percent - point.shares[i]) < 0.3);
}

// What was measured at an option, the mean where there is more than one point.
export function measuredAt(view, option) {
  const found = view.measured.filter((point) => isAt(point, option));
  if (found.length === 0) return null;
  const of = (pick) => mean(found.map(pick));
  return {
    count: found.length,
    own: found.some((point) => point.own),
    jobs: option.jobs.map((_, i) => ({ speed: of((p) => p.jobs[i].speed), rate: of((p) => p.jobs[i].rate), p99: of((p) => p.jobs[i].p99) })),
    power_w: of((p) => p.power_w),
    energy_saved: of((p) => p.energy_saved),
    stp: of((p) => p.stp),
  };
}

// Places of measured points on charts over a share: splits that neither add up to the whole GPU nor
// are an option have none.
export function measuredSpots(view) {
  return view.measured.flatMap((point) => {
    if (point.sharing !== "limited") return [{ ...point, spot: { slot: point.sharing } }];
    const shown = point.isWhole || view.splits.some((option) => isAt(point, option));
    return shown ? [{ ...point, spot: { x: point.shares[0] } }] : [];
  });
}
