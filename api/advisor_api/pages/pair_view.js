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

// What sharing without a split is called in measured points.
const WAYS = { uncapped: "uncapped", "time-sliced": "time-sliced" };

export function pairView(given, measured) {
  const options = given.candidates;
  return {
    given,
    measured,
    options,
    a: given.jobs[0].job,
    b: given.jobs[1].job,
    splits: options.filter((option) => option.sharing === "limited"),
    best: options.find((option) => option.split === given.choice.split) ?? given.choice,
  };
}

// Where an option stands on the charts.
export function spot(option) {
  return option.sharing === "limited" ? { x: option.jobs[0].share_percent } : { slot: option.sharing };
}

// Measured points in the order of the two jobs, with what the options have: relative speeds, power,
// energy saved. Left out are those of failed jobs, which have no rates, and those with wrong results.
export function measuredOptions(points, given) {
  const [aloneA, aloneB] = given.jobs.map(({ alone }) => alone);
  return points
    .filter((point) => point.rate_a !== null && point.rate_b !== null && point.power_w !== null)
    .filter((point) => !WRONG.some((flag) => point.flags.includes(flag)))
    .map((point) => (point.job_a === given.jobs[0].job ? point : swapped(point)))
    .map((point) => {
      const [speedA, speedB] = [point.rate_a / aloneA.rate, point.rate_b / aloneB.rate];
      return {
        spot: pointSpot(point, given),
        shares: [point.share_a_percent, point.share_b_percent],
        jobs: [{ speed: speedA, rate: point.rate_a }, { speed: speedB, rate: point.rate_b }],
        power_w: point.power_w,
        energy_saved: 1 - point.power_w / (speedA * aloneA.power_w + speedB * aloneB.power_w),
        stp: speedA + speedB,
      };
    })
    .filter((point) => point.spot !== null);
}

function swapped(point) {
  return {
    ...point,
    rate_a: point.rate_b,
    rate_b: point.rate_a,
    share_a_percent: point.share_b_percent,
    share_b_percent: point.share_a_percent,
  };
}

// Splits that neither add up to the whole GPU nor are an option have no place on the charts.
function pointSpot(point, { candidates }) {
  if (point.mode in WAYS) return { slot: WAYS[point.mode] };
  const shares = [point.share_a_percent, point.share_b_percent];
  const whole = Math.abs(shares[0] + shares[1] - 100) < 1.6;
  return whole || candidates.some((option) => sameShares(shares, option)) ? { x: shares[0] } : null;
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
