// What launched pairs did beside what the model had predicted of them.

import { chart } from "./chart.js";
import { html, link, notice, table } from "./elements.js";
import { change, moment, percent, withUnit } from "./numbers.js";
import { ticks } from "./scale.js";

const TONES = ["a", "b"];

export function observed(observations) {
  const known = observations.filter((one) => one.predicted_power_w !== null && one.power_w !== null);
  if (known.length === 0) {
    return [notice("", "No pair was launched with a prediction of this model yet.")];
  }
  const speeds = known.flatMap(({ jobs }) =>
    jobs.map((job, i) => ({
      x: part(job.predicted_rate, job.solo_rate),
      y: part(job.rate, job.solo_rate),
      tone: TONES[i],
    })),
  );
  const power = known.map((one) => ({ x: one.predicted_power_w, y: one.power_w, tone: "c" }));
  return [
    html("p", { class: "quiet-text" }, "Each mark is one launched pair; on the line both are the same."),
    html(
      "div",
      { class: "charts large" },
      scatter("Relative speed", "% of alone on the whole GPU", speeds),
      scatter("Power", "W", power),
    ),
    list(known),
  ];
}

function part(rate, solo) {
  return rate === null || !solo ? NaN : (100 * rate) / solo;
}

function scatter(title, unit, spots) {
  const measured = spots.filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
  const top = Math.max(1, ...measured.flatMap(({ x, y }) => [x, y]));
  const steps = ticks(0, top, 4);
  const end = steps.at(-1);
  const same = { tone: "c", name: "", dots: false, points: [{ x: 0, y: 0 }, { x: end, y: end }] };
  const x = { label: `predicted, ${unit.split(" ")[0]}`, domain: [0, end], ticks: steps };
  return chart({ title: `${title}, observed`, unit, x, series: [same], measured }).figure;
}

function list(known) {
  const columns = [
    { name: "Launch", cell: (o) => link(o.launch_id, "/launch", { id: o.launch_id }) },
    { name: "Jobs", cell: (o) => o.jobs.map(({ job }) => job).join(" and ") },
    { name: "Started", cell: (o) => moment(o.started_at) },
    { name: "First job", number: true, cell: ({ jobs }) => speed(jobs[0]) },
    { name: "Second job", number: true, cell: ({ jobs }) => speed(jobs[1]) },
    { name: "Power", number: true, cell: (o) => [withUnit(o.power_w, "W"), " ", gap(o.power_w, o.predicted_power_w)] },
    {
      name: "Energy saved",
      number: true,
      cell: (o) => [percent(o.energy_saved), " ", html("small", {}, o.predicted_energy_saved === null ? "" : `${percent(o.predicted_energy_saved)} predicted`)],
    },
  ];
  const note = html("p", { class: "hint" }, "The small numbers say how far what was observed is from what was predicted.");
  return html("div", {}, table("Launched pairs", columns, known, { stacked: true }), note);
}

function speed({ rate, solo_rate: solo, predicted_rate: predicted }) {
  return [percent(rate === null || !solo ? null : rate / solo), " ", gap(rate, predicted)];
}

function gap(value, predicted) {
  return html("small", {}, change(value, predicted));
}
