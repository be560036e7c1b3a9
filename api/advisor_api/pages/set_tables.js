// The numbers of a set as tables.

import { html, table } from "./elements.js";
import { change, NONE, number, percent, range } from "./numbers.js";
import { measuredAt, OBJECTIVES, tail } from "./set_view.js";

// What to expect at one option, beside the best one and beside what was measured.
export function readout(view, option) {
  const { best } = view;
  const found = measuredAt(view, option);
  const row = (name, key, pick, at, scale = 1) => ({
    name,
    key,
    value: pick(option).value,
    text: number(scale * pick(option).value),
    range: range(pick(option), scale),
    best: change(pick(option).value, pick(best).value),
    measured: found && number(scale * at(found)),
  });
  const rows = [
    ...view.names.flatMap((name, i) => [
      row(`${name}, % of full speed`, `speed_${i + 1}`, (o) => o.jobs[i].speed, (m) => m.jobs[i].speed, 100),
      ...(view.isPair ? [row(`${name}, ${unit(view.given, i)}/s`, `rate_${i + 1}`, (o) => o.jobs[i].rate, (m) => m.jobs[i].rate)] : []),
      ...(option.jobs[i].latency_p99_ms && best.jobs[i].latency_p99_ms ? [row(`${name}, p99 in ms`, `p99_${i + 1}`, (o) => o.jobs[i].latency_p99_ms, (m) => m.jobs[i].p99)] : []),
    ]),
    row("Power, W", "power_w", (o) => o.power_w, (m) => m.power_w),
    { ...row("Energy saved for the same work, %", "energy_saved", (o) => o.energy_saved, (m) => m.energy_saved, 100), best: points(option, best) },
    row("Work an hour, one job alone is 1", "stp", (o) => o.stp, (m) => m.stp),
  ];
  const columns = [
    { name: `At ${option.split}`, cell: (r) => r.name },
    {
      name: "Expected",
      number: true,
      cell: (r) => [html("span", { "data-key": r.key, "data-value": r.value }, r.text), r.range ? [html("br"), html("small", {}, r.range)] : null],
    },
  ];
  // Measured in any way at all: the column stays where it is while the shares move.
  if (view.measured.length) {
    columns.push({ name: found?.own ? "Measured here" : "Measured", number: true, cell: (r) => r.measured ?? NONE });
  }
  if (option !== best) columns.push({ name: `Beside ${best.split}`, number: true, cell: (r) => r.best });
  return table(`Expected at ${option.split}`, columns, rows);
}

// A part of a part that is saved would say nothing.
function points(option, best) {
  const more = 100 * (option.energy_saved.value - best.energy_saved.value);
  return `${more < 0 ? "−" : "+"}${number(Math.abs(more), 2)} points`;
}

export function objectives({ given, options }) {
  const rows = Object.entries(given.picks).map(([name, pick]) => ({ name, option: options.find((option) => option.split === pick), ...OBJECTIVES[name] }));
  const worth = ({ option, name, scale }) => option && number(scale * option.objectives[name].value);
  const columns = [
    { name: "Objective", cell: (r) => r.title },
    { name: "Chooses", cell: (r) => r.option?.split ?? NONE },
    { name: "Worth there", number: true, cell: (r) => worth(r) },
    { name: "Unit", cell: (r) => r.unit },
    { name: "First job", number: true, cell: (r) => percent(r.option?.jobs[0].speed.value) },
    { name: "Second job", number: true, cell: (r) => percent(r.option?.jobs[1].speed.value) },
  ];
  return table("What each objective would choose", columns, rows, { stacked: true });
}

export function allOptions(view) {
  const columns = [
    { name: "Way", cell: (o) => o.split },
    ...view.names.map((name, i) => ({ name: `${name}, %`, number: true, cell: (o) => interval(o.jobs[i].speed, 100) })),
    ...(view.serves ? [{ name: "p99, ms", number: true, cell: (o) => (tail(o) ? interval(tail(o)) : NONE) }] : []),
    { name: "Power, W", number: true, cell: (o) => interval(o.power_w) },
    { name: "Energy saved, %", number: true, cell: (o) => interval(o.energy_saved, 100) },
    { name: "Work an hour", number: true, cell: (o) => interval(o.stp) },
    { name: "Limits", cell: (o) => o.violations.join("; ") },
  ];
  return table("All ways", columns, view.options, { stacked: true, rowClass: (option) => (option === view.best ? "chosen" : null) });
}

function unit({ jobs }, index) {
  return jobs[index].rate_unit;
}

function interval(value, scale = 1) {
  const text = range(value, scale);
  return [number(scale * value.value), text ? [html("br"), html("small", {}, text)] : null];
}
