// The state of a launch in numbers.

import { facts, html, table } from "./elements.js";
import { outcomeTag } from "./launch_words.js";
import { change, duration, moment, NONE, number, percent, range, share, withUnit } from "./numbers.js";

export function standing(launch) {
  return facts([
    ["GPU", launch.gpu_model, launch.gpu_uuid],
    ["Host", launch.host],
    ["Pair of the queue", launch.pairs > 1 ? `${launch.pair_number + 1} of ${launch.pairs}` : null],
    ["Started", launch.started_at && moment(launch.started_at)],
    ["Ended", launch.ended_at && moment(launch.ended_at)],
    ["Together for", duration(launch.overlap_s)],
    ["Power now", launch.power_w === null ? null : withUnit(launch.power_w, "W")],
    ["Energy so far", launch.energy_j === null ? null : withUnit(launch.energy_j / 1000, "kJ")],
    [
      "Energy saved",
      launch.energy_saved === null ? null : percent(launch.energy_saved),
      "for the same work, against one after the other, over the last seconds",
    ],
    [
      "One job alone for",
      launch.rest_s ? duration(launch.rest_s) : null,
      launch.rest_energy_j ? `after the other had ended: ${number(launch.rest_energy_j / 1000)} kJ` : null,
    ],
    [
      "Stranded",
      launch.stranded_unit_s ? `${number(launch.stranded_unit_s)} unit s` : null,
      "units held for a job that had ended, times seconds",
    ],
  ]);
}

function limitText({ proven, proof }) {
  if (!proven) return "no";
  return proof === "set" ? "set, not read back from the job" : "yes, held by the server";
}

export function jobTable({ jobs }) {
  const columns = [
    { name: "Job", cell: (j) => j.job },
    { name: "State", cell: outcomeTag },
    { name: "Share", number: true, cell: (j) => share(j.share_percent) },
    { name: "Units granted", number: true, cell: (j) => j.units_granted ?? "" },
    { name: "Limit proven", cell: (j) => limitText(j) },
    { name: "Progress", number: true, cell: (j) => `${number(j.steps)} ${j.rate_unit}` },
    { name: "Exit code", number: true, cell: (j) => j.exit_code ?? "" },
    { name: "What went wrong", cell: (j) => j.error ?? "" },
  ];
  return table("Jobs", columns, jobs, { stacked: true });
}

export function beside(launch) {
  const columns = [
    { name: "", cell: (r) => r.name },
    {
      name: "Predicted",
      number: true,
      cell: (r) => [r.predicted, r.range ? [html("br"), html("small", {}, r.range)] : null],
    },
    { name: "Observed", number: true, cell: (r) => r.observed },
    { name: "Off by", number: true, cell: (r) => r.gap },
  ];
  return table("Predicted beside observed", columns, besideRows(launch));
}

function besideRows(launch) {
  const { forecast: f, jobs } = launch;
  if (jobs.length !== f.jobs.length) return [];
  return [
    ...jobs.map((j, n) => row(`${j.job}, ${j.rate_unit}/s`, f.jobs[n].rate, j.rate)),
    ...jobs.map((j, n) => row(`${j.job}, % of full speed`, times(f.jobs[n].rate, 1 / f.jobs[n].solo_rate), j.relative_speed, 100)),
    row("Power, W", f.power_w, launch.power_w),
    f.energy_saved ? { ...row("Energy saved, %", f.energy_saved, launch.energy_saved, 100), gap: "" } : null,
  ].filter((one) => one !== null);
}

function row(name, predicted, observed, scale = 1) {
  return {
    name,
    predicted: number(scale * predicted.value),
    range: range(predicted, scale),
    observed: observed === null ? NONE : number(scale * observed),
    gap: change(observed, predicted.value),
  };
}

function times({ value, low, high }, factor) {
  return { value: value * factor, low: low * factor, high: high * factor };
}
