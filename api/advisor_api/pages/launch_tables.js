// The state of a launch in numbers.

import { facts, html, table } from "./elements.js";
import { outcomeTag, over, powerOf, savedOf, speedOf, ratedSpeed } from "./launch_words.js";
import { change, duration, energy, mean, moment, NONE, number, percent, range, share, withUnit } from "./numbers.js";

export function standing(launch) {
  const { ledger } = launch;
  const ended = over(launch);
  return facts([
    ["GPU", launch.gpu_model, launch.gpu_uuid],
    ["Host", launch.host],
    [launch.try_s ? "Way on trial" : "Pair of the queue", launch.pairs > 1 ? `${launch.pair_number + 1} of ${launch.pairs}` : null],
    ["Started", launch.started_at && moment(launch.started_at)],
    ["Ended", launch.ended_at && moment(launch.ended_at)],
    ["Together for", duration(launch.overlap_s)],
    ["Of promised speed", drift(launch.speed_drift), "all jobs, mean of five minutes (promised)"],
    ["Of promised work per joule", drift(launch.work_drift), launch.promised_at && `since ${moment(launch.promised_at)}${launch.promise_renewed ? `, when it was renewed: ${launch.promise_renewed}` : ""} (promised)`],
    [ended ? "Power" : "Power now", known(powerOf(launch), (w) => withUnit(w, "W")), ended ? "mean while all ran" : null],
    [
      ended ? "Energy" : "Energy so far",
      known(ledger?.energy_j ?? launch.energy_j, energy),
      ledger?.unread_s >= 1 ? `not known for ${duration(ledger.unread_s)}, in which nothing counts as saved` : null,
    ],
    [
      "Energy of the launch",
      known(launch.whole_energy_j, energy),
      launch.starts_energy_j ? `since it took the GPU; ${energy(launch.starts_energy_j)} before jobs ran` : "since it took the GPU",
    ],
    ["Unwatched", launch.unwatched_s ? duration(launch.unwatched_s) : null, "between two looks at the jobs beyond 2 s"],
    ["Energy saved", known(savedOf(launch), percent), `for the same work, against each job alone on a GPU, ${ended ? "while all ran" : "over the last seconds"}`],
    ["Saved in all", ledger && energy(ledger.alone_j - ledger.energy_j), "where a GPU that becomes free is off"],
    ["GPU time saved", ledger && duration(ledger.alone_s - ledger.held_s), "against a whole GPU for each job"],
    [
      "One job alone for",
      launch.rest_s ? duration(launch.rest_s) : null,
      launch.rest_energy_j ? `after the other had ended: ${number(launch.rest_energy_j / 1000)} kJ` : null,
    ],
    ["Stranded", launch.stranded_unit_s ? `${number(launch.stranded_unit_s)} unit s` : null, "units held for a job that had ended, times seconds"],
  ]);
}

function drift(of) {
  return known(of, () => `${percent(of.ratio)} (${range(of, 100)})`);
}

function known(value, text) {
  return value === null || value === undefined ? null : text(value);
}

function limitText({ proven, proof }) {
  if (!proven) return "no";
  return proof === "set" ? "set, not read back from the job" : "yes, held by the server";
}

function p99({ latency_p99_ms: now, mean_p99_ms: mean, max_p99_ms: promised }) {
  const own = now ?? mean;
  if (own === null || own === undefined) return "";
  const late = promised !== null && own > promised;
  return [html("span", { class: late ? "bad" : null }, withUnit(own, "ms")), promised === null ? null : html("small", {}, ` (${number(promised)})`)];
}

function unread({ unread: why, unread_since, stalled_since }) {
  if (why) return `since ${moment(unread_since)}: ${why}`;
  return stalled_since ? `stalled: no progress since ${moment(stalled_since)}` : "";
}

export function jobTable({ jobs }) {
  const columns = [
    { name: "Job", cell: (j) => j.job },
    { name: "State", cell: outcomeTag },
    { name: "Share", number: true, cell: (j) => share(j.share_percent) },
    { name: "Units granted", number: true, cell: (j) => j.units_granted ?? "" },
    { name: "Limit proven", cell: (j) => limitText(j) },
    { name: "Speed", number: true, cell: (j) => ratedSpeed(j) },
    { name: "Of promised speed", number: true, cell: (j) => drift(j.drift) ?? (j.paused ? "paused" : ""), seldom: true },
    { name: "p99 (promised)", number: true, cell: p99, seldom: true },
    { name: "Arriving", number: true, cell: (j) => known(j.demand, (rate) => `${number(rate)}/s`) ?? "", seldom: true },
    { name: "Progress", number: true, cell: (j) => `${number(j.steps)} ${j.rate_unit}` },
    { name: "Not known", cell: unread, seldom: true },
    { name: "Exit code", number: true, cell: (j) => j.exit_code ?? "", seldom: true },
    { name: "What went wrong", cell: (j) => j.error ?? "", seldom: true },
  ];
  const shown = columns.filter(({ cell, seldom }) => !seldom || jobs.some((job) => cell(job) !== ""));
  return table("Jobs", shown, jobs, { stacked: true });
}

export function beside(launch) {
  const columns = [
    { name: "Of what", cell: (r) => r.name },
    { name: "Predicted", number: true, cell: (r) => [r.predicted, r.range ? [html("br"), html("small", {}, r.range)] : null] },
    { name: "Observed", number: true, cell: (r) => r.observed },
    { name: "Off by", number: true, cell: (r) => r.gap },
  ];
  return table("Predicted beside observed", columns, besideRows(launch));
}

function besideRows(launch) {
  const { forecast: f, jobs } = launch;
  if (jobs.length !== f.jobs.length) return [];
  // Copies at one share are one row, of their mean.
  const same = (j) => jobs.filter((one) => one.job === j.job && one.share_percent === j.share_percent);
  const each = jobs.map((j, n) => ({ j, of: f.jobs[n], copies: same(j) })).filter(({ j, copies }) => copies[0] === j);
  const name = ({ j, copies }) => (copies.length > 1 ? `${copies.length} × ${j.job}` : j.job);
  return [
    ...each.map((one) => row(`${name(one)}, ${one.j.rate_unit}/s`, one.of.rate, mean(one.copies.map((j) => j.rate ?? j.mean_rate)))),
    ...each.map((one) => row(`${name(one)}, % of full speed`, times(one.of.rate, 1 / one.of.solo_rate), mean(one.copies.map(speedOf)), 100)),
    row("Power, W", f.power_w, powerOf(launch)),
    f.energy_saved ? { ...row("Energy saved, %", f.energy_saved, savedOf(launch), 100), gap: "" } : null,
  ].filter((one) => one !== null);
}

function row(name, predicted, observed, scale = 1) {
  return {
    name,
    predicted: number(scale * predicted.value),
    range: range(predicted, scale),
    observed: observed === null || observed === undefined ? NONE : number(scale * observed),
    gap: change(observed, predicted.value),
  };
}

export function times({ value, low, high }, factor) {
  return { value: value * factor, low: low * factor, high: high * factor };
}
