// What a launch did from its start on, as its supervisor keeps it: after the end it is still there.

import { chart } from "./chart.js";
import { html } from "./elements.js";
import { times } from "./launch_tables.js";
import { over } from "./launch_words.js";
import { ticks } from "./scale.js";
import { get, part } from "./service.js";
import { jobTones } from "./tones.js";

export function history(id) {
  const element = html("section", { hidden: true }, html("h2", {}, "From the start"));
  let drawn = null;
  let next = 0;
  let last = null;

  // Asked for when a new point can be there, and once more at the end.
  async function look(launch) {
    const at = Date.parse(launch.updated_at);
    if (at === last || (at < next && at >= last && !over(launch))) return;
    last = at;
    const { history: kept } = await get(`/v1/launches/${part(id)}/history`);
    next = at + 1000 * (kept?.step_s ?? 1);
    if (!kept || kept.power_w.length < 2) return;
    element.hidden = false;
    drawn ??= make(launch, element);
    drawn.forEach((one) => one.show(kept));
  }

  return { element, look };
}

function make(launch, element) {
  const f = launch.forecast;
  const names = launch.jobs.map(({ job }) => job);
  const tone = jobTones(names);
  const speeds = launch.jobs.map(({ job }, n) => {
    // Copies of a job have one name and one range.
    const first = names.indexOf(job) === n;
    const count = names.filter((name) => name === job).length;
    const expected = first ? f?.jobs[n] : null;
    return [tone(job), first ? (count > 1 ? `${count} × ${job}` : job) : "", (kept) => kept.jobs[n]?.speeds, expected && times(expected.rate, 1 / expected.solo_rate)];
  });
  const made = [
    live("Relative speed", "% of alone on the whole GPU", 100, speeds),
    live("Power", "W", 1, [["power", "", (kept) => kept.power_w, f?.power_w]]),
    live("Energy saved", "% for the same work", 100, [["power", "", (kept) => kept.energy_saved, f?.energy_saved]]),
  ];
  const explained = html("p", { class: "quiet-text" }, "Lines are observed; the shaded ranges were predicted.");
  element.append(explained, html("div", { class: "charts" }, made.map((one) => one.figure)));
  return made;
}

function live(title, unit, scale, lines) {
  const drawn = chart({ title, unit, x: { label: "time since the start", domain: [0, 1], ticks: [] }, series: [] });
  const show = (kept) => {
    const end = kept.power_w.length * kept.step_s;
    drawn.show({
      x: { label: "time since the start", domain: [0, end], ...marks(end) },
      series: lines.flatMap(([tone, name, pick, expected]) => [
        ...ranges(expected, tone, scale, end),
        { tone, name, dots: false, points: points(pick(kept) ?? [], kept.step_s, scale) },
      ]),
    });
  };
  return { figure: drawn.figure, show };
}

// In the unit that people say such a time in.
function marks(end) {
  const [unit, name] = end < 120 ? [1, "s"] : end < 7200 ? [60, "min"] : [3600, "h"];
  const marked = ticks(0, end / unit, 4).map((tick) => tick * unit);
  return { ticks: marked.filter((tick) => tick <= end), text: (tick) => (tick ? `${tick / unit} ${name}` : "0") };
}

function points(values, step, scale) {
  return values.map((y, n) => ({ x: (n + 0.5) * step, y })).filter(({ y }) => y !== null).map(({ x, y }) => ({ x, y: scale * y }));
}

// A prediction is a range over all of the time, without a line.
function ranges(expected, tone, scale, end) {
  if (!expected) return [];
  const at = (x) => ({ x, y: scale * expected.value, low: scale * expected.low, high: scale * expected.high });
  return [{ tone, name: "", dots: false, line: false, points: [at(0), at(end)] }];
}
