// What launched jobs did beside what had been predicted of them: pairs and sets, hits and misses.

import { chart } from "./chart.js";
import { html, link, notice, table, tag } from "./elements.js";
import { countedNames, verdict } from "./launch_words.js";
import { change, moment, percent, withUnit } from "./numbers.js";
import { ticks } from "./scale.js";
import { get } from "./service.js";

// Of the launches that are wanted; their folders say which missed, as long as they are kept.
export async function observed(wanted) {
  const [{ observations }, { launches }] = await Promise.all([get("/v1/observations?limit=1000"), get("/v1/launches")]);
  const late = new Set(launches.filter((one) => verdict(one)?.good === false).map((one) => one.launch_id));
  const missed = (one) => late.has(one.launch_id);
  const known = observations.filter(wanted).filter((one) => one.predicted_power_w !== null && one.power_w !== null);
  if (known.length === 0) {
    return [notice("", "Nothing was launched with such a prediction yet.")];
  }
  const speeds = known.flatMap(({ jobs }) =>
    jobs.map((job) => ({ x: part(job.predicted_rate, job.solo_rate), y: part(job.rate, job.solo_rate), tone: jobs.length > 2 ? "b" : "a", square: jobs.length > 2 })),
  );
  const power = known.map((one) => ({ x: one.predicted_power_w, y: one.power_w, tone: "c" }));
  return [
    html("p", { class: "quiet-text" }, `${known.filter(missed).length} of ${known.length} launches missed the range that was predicted. On the line both are the same; round marks are of pairs, square ones of three to seven jobs.`),
    html("div", { class: "charts large" }, scatter("Relative speed", "% of alone on the whole GPU", speeds), scatter("Power", "W", power)),
    list(known, missed),
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

function list(known, missed) {
  const columns = [
    { name: "Launch", cell: (o) => [link(o.launch_id, "/launch", { id: o.launch_id }), " ", missed(o) ? tag("missed", "bad") : null] },
    { name: "Jobs", cell: countedNames },
    { name: "Started", cell: (o) => moment(o.started_at) },
    { name: "Speeds", cell: ({ jobs }) => jobs.flatMap((job, n) => [n ? ", " : "", ...speed(job)]) },
    { name: "Power", number: true, cell: (o) => [withUnit(o.power_w, "W"), " ", gap(o.power_w, o.predicted_power_w)] },
    {
      name: "Energy saved",
      number: true,
      cell: (o) => [percent(o.energy_saved), " ", html("small", {}, o.predicted_energy_saved === null ? "" : `${percent(o.predicted_energy_saved)} predicted`)],
    },
  ];
  const note = html("p", { class: "hint" }, "The small numbers say how far what was observed is from what was predicted.");
  return html("div", {}, table("Launches", columns, known.toSorted((p, q) => missed(q) - missed(p)), { stacked: true }), note);
}

function speed({ rate, solo_rate: solo, predicted_rate: predicted }) {
  return [percent(rate === null || !solo ? null : rate / solo), " ", gap(rate, predicted)];
}

function gap(value, predicted) {
  return html("small", {}, change(value, predicted));
}
