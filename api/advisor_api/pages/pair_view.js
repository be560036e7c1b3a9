// The answer of the service as the pair page needs it.

import { WRONG } from "./flags.js";
import { mean } from "./numbers.js";

export const DEFAULT_OBJECTIVE = "energy-efficiency";

// The words for each objective; `scale` makes per-watt values readable.
export const OBJECTIVES = {
  "energy-efficiency": { title: "Energy for the same work", unit: "alone / shared", scale: 1 },
  "throughput-per-watt": { title: "Sum of relative speeds per watt", unit: "per kW", scale: 1000 },
  "raw-throughput-per-watt": { title: "Sum of rates per watt", unit: "steps of both per J", scale: 1 },
  throughput: { title: "Sum of relative speeds", unit: "", scale: 1 },
  "energy-delay": { title: "Inverse of energy times time", unit: "1/kW", scale: 1000 },
  "max-min": { title: "Speed of the slower job", unit: "of its full speed", scale: 1 },
};

// Percent: shares are rounded to whole SMs.
const WHOLE_WITHIN = 1.6;

// What sharing without a split is called in measured points.
const WAYS = { uncapped: "uncapped", "time-sliced": "time-sliced" };

export function pairView(given, measured) {
  const options = given.candidates;
  const named = (split) => options.find((option) => option.split === split);
  const best = named(given.choice.split) ?? given.choice;
  return {
    given,
    measured,
    options,
    a: given.jobs[0].job,
    b: given.jobs[1].job,
    splits: options.filter((option) => option.sharing === "limited"),
    best,
    // What the verdict is about: where jobs need not share, the split that saves time.
    way: named(given.call) ?? best,
  };
}

// Where an option stands on the charts; two may have the same first share.
export function spot(option) {
  if (option.sharing !== "limited") return { slot: option.sharing };
  return { x: option.jobs[0].share_percent, key: option.split };
}

// Whether the shares are the whole GPU: only those lie on a line over one share.
export function isWhole(option) {
  return Math.abs(sum(shares(option)) - 100) < WHOLE_WITHIN;
}

// Measured points in the order of the two jobs, with what the options have: relative speeds, power,
// energy saved. Left out are those of failed jobs, which have no rates, and those with wrong results.
export function measuredOptions(points, given) {
  const alone = given.jobs.map((job) => job.alone);
  return points
    .filter((point) => point.power_w !== null && point.jobs.every(({ rate }) => rate !== null))
    .filter((point) => !WRONG.some((flag) => point.flags.includes(flag)))
    .map((point) => ({ ...point, jobs: inOrder(point.jobs, given) }))
    .map((point) => {
      const speeds = point.jobs.map(({ rate }, i) => rate / alone[i].rate);
      return {
        spot: pointSpot(point, given),
        shares: shares(point),
        jobs: point.jobs.map(({ rate }, i) => ({ speed: speeds[i], rate })),
        power_w: point.power_w,
        energy_saved: 1 - point.power_w / sum(speeds.map((speed, i) => speed * alone[i].power_w)),
        stp: sum(speeds),
      };
    })
    .filter((point) => point.spot !== null);
}

function inOrder(jobs, given) {
  return jobs[0].job === given.jobs[0].job ? jobs : jobs.toReversed();
}

function shares(point) {
  return point.jobs.map((job) => job.share_percent);
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

// Splits that neither add up to the whole GPU nor are an option have no place on the charts.
function pointSpot(point, { candidates }) {
  if (point.mode in WAYS) return { slot: WAYS[point.mode] };
  const asked = shares(point);
  return isWhole(point) || candidates.some((option) => sameShares(asked, option)) ? { x: asked[0] } : null;
}

// Where unsafe counts of SMs are left out, two options may have the same first share.
function sameShares([a, b], option) {
  const [first, second] = option.jobs.map((job) => job.share_percent);
  const apart = [a - first, b - second];
  return option.sharing === "limited" && Math.max(...apart.map(Math.abs)) < 0.3;
}

// What was measured at an option, the mean where there is more than one point.
export function measuredAt(view, option) {
  const wanted = spot(option);
  const found = view.measured.filter(({ spot: at, shares }) =>
    wanted.slot ? at.slot === wanted.slot : !at.slot && sameShares(shares, option),
  );
  if (found.length === 0) return null;
  const of = (pick) => mean(found.map(pick));
  return {
    count: found.length,
    jobs: [0, 1].map((index) => ({
      speed: of((p) => p.jobs[index].speed),
      rate: of((p) => p.jobs[index].rate),
    })),
    power_w: of((p) => p.power_w),
    energy_saved: of((p) => p.energy_saved),
    stp: of((p) => p.stp),
  };
}
