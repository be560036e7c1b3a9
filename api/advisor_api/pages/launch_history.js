// The last minutes of a launch as charts, as far as this page has seen them.

import { chart } from "./chart.js";
import { html } from "./elements.js";
import { over } from "./launch_words.js";

const KEPT_S = 180;
const TONES = ["a", "b", "c"];
const TICKS = [-180, -150, -120, -90, -60, -30, 0];

export function history() {
  const element = html("section", { hidden: true }, html("h2", {}, "The last three minutes"));
  const readings = [];
  let drawn = null;
  let last = null;

  function add(launch) {
    if (over(launch) || launch.jobs.length < 2 || launch.updated_at === last) return;
    last = launch.updated_at;
    const at = Date.parse(launch.updated_at) / 1000;
    // The clock of its host was set back.
    if (readings.length && readings.at(-1).at > at) readings.length = 0;
    readings.push({ at, launch });
    while (readings[0].at < at - KEPT_S) readings.shift();
    if (readings.length < 2) return;
    element.hidden = false;
    drawn ??= make(launch, element);
    drawn.forEach((one) => one.show(readings, at));
  }

  return { element, add };
}

function make(launch, element) {
  const f = launch.forecast;
  const speeds = launch.jobs.map(({ job }, n) => {
    const expected = f?.jobs[n];
    return [TONES[n % TONES.length], job, (l) => l.jobs[n]?.relative_speed, expected && divided(expected.rate, expected.solo_rate)];
  });
  const made = [
    live("Relative speed", "% of alone on the whole GPU", 100, speeds),
    live("Power", "W", 1, [["c", "", (l) => l.power_w, f?.power_w]]),
    live("Energy saved", "% for the same work", 100, [["c", "", (l) => l.energy_saved, f?.energy_saved]]),
  ];
  const explained = html("p", { class: "quiet-text" }, "Lines are observed; the shaded ranges were predicted.");
  element.append(explained, html("div", { class: "charts" }, made.map((one) => one.figure)));
  return made;
}

function live(title, unit, scale, lines) {
  const drawn = chart({
    title,
    unit,
    x: { label: "seconds ago", domain: [-KEPT_S, 0], ticks: TICKS, text: (tick) => String(-tick) },
    series: [],
  });
  const show = (readings, now) =>
    drawn.show({
      series: lines.flatMap(([tone, name, pick, expected]) => [
        ...ranges(expected, tone, scale),
        { tone, name, dots: false, points: points(readings, now, pick, scale) },
      ]),
    });
  return { figure: drawn.figure, show };
}

function points(readings, now, pick, scale) {
  return readings
    .filter(({ launch }) => Number.isFinite(pick(launch)))
    .map(({ at, launch }) => ({ x: at - now, y: scale * pick(launch) }));
}

// A prediction is a range over all of the time, without a line.
function ranges(expected, tone, scale) {
  if (!expected) return [];
  const end = (x) => ({ x, y: scale * expected.value, low: scale * expected.low, high: scale * expected.high });
  return [{ tone, name: "", dots: false, line: false, points: [end(-KEPT_S), end(0)] }];
}

function divided({ value, low, high }, by) {
  return { value: value / by, low: low / by, high: high / by };
}
