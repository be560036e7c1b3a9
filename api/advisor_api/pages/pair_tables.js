// The numbers of a pair as tables.

import { html, table } from "./elements.js";
import { change, NONE, number, percent, range, withUnit } from "./numbers.js";
import { measuredAt, OBJECTIVES } from "./pair_view.js";

// What to expect at one option, beside the best one and beside what was measured.
export function readout(view, option) {
  const { given, best } = view;
  const found = measuredAt(view, option);
  const row = (name, key, pick, scale = 1) => ({
    name,
    key,
    value: pick(option).value,
    text: number(scale * pick(option).value),
    range: range(pick(option), scale),
    best: change(pick(option).value, pick(best).value),
    measured: found && number(scale * pick(found)),
  });
  const rows = [
    row(`${view.a}, % of full speed`, "speed_a", (o) => o.speed_a, 100),
    row(`${view.b}, % of full speed`, "speed_b", (o) => o.speed_b, 100),
    row(`${view.a}, ${given.rate_unit_a}/s`, "rate_a", (o) => o.rate_a),
    row(`${view.b}, ${given.rate_unit_b}/s`, "rate_b", (o) => o.rate_b),
    row("Power, W", "power_w", (o) => o.power_w),
    row("Energy saved for the same work, %", "energy_saved", (o) => o.energy_saved, 100),
    row("Work an hour, one after the other is 1", "stp", (o) => o.stp),
  ];
  const columns = [
    { name: `At ${option.name}`, cell: (r) => r.name },
    {
      name: "Expected",
      number: true,
      cell: (r) => [
        html("span", { "data-key": r.key, "data-value": r.value }, r.text),
        r.range ? [html("br"), html("small", {}, r.range)] : null,
      ],
    },
  ];
  // Measured at any split at all: the column stays where it is while the split moves.
  if (view.measured.length) {
    columns.push({ name: "Measured", number: true, cell: (r) => r.measured ?? NONE });
  }
  columns.push({ name: `Beside ${best.name}`, number: true, cell: (r) => (option === best ? "" : r.best) });
  return table(`Expected at ${option.name}`, columns, rows);
}

export function rules(view) {
  const { given } = view;
  const columns = [
    { name: "Rule", cell: (r) => r.meaning },
    { name: "Chooses", cell: (r) => r.option?.name ?? "not measured" },
    { name: "First job", number: true, cell: (r) => percent(r.option?.speed_a.value) },
    { name: "Second job", number: true, cell: (r) => percent(r.option?.speed_b.value) },
    { name: "Power", number: true, cell: (r) => withUnit(r.option?.power_w.value, "W") },
    { name: "Energy saved", number: true, cell: (r) => percent(r.option?.energy_saved.value) },
    { name: "Work an hour", number: true, cell: (r) => r.option && number(r.option.stp.value) },
  ];
  return table("What simple rules would do", columns, given.rules, { stacked: true });
}

export function objectives({ given, options }) {
  const rows = Object.entries(given.picks).map(([name, pick]) => ({
    name,
    option: options.find((option) => option.name === pick),
    ...OBJECTIVES[name],
  }));
  const worth = ({ option, name, scale }) => option && number(scale * option.worth[name].value);
  const columns = [
    { name: "Objective", cell: (r) => r.title },
    { name: "Chooses", cell: (r) => r.option?.name ?? NONE },
    { name: "Worth there", number: true, cell: (r) => worth(r) },
    { name: "Unit", cell: (r) => r.unit },
    { name: "First job", number: true, cell: (r) => percent(r.option?.speed_a.value) },
    { name: "Second job", number: true, cell: (r) => percent(r.option?.speed_b.value) },
  ];
  return table("What each objective would choose", columns, rows, { stacked: true });
}

export function allOptions(view) {
  const { given, best } = view;
  const columns = [
    { name: "Split", cell: (o) => o.name },
    { name: `${view.a}, ${given.rate_unit_a}/s`, number: true, cell: (o) => interval(o.rate_a) },
    { name: `${view.b}, ${given.rate_unit_b}/s`, number: true, cell: (o) => interval(o.rate_b) },
    { name: `${view.a}, %`, number: true, cell: (o) => interval(o.speed_a, 100) },
    { name: `${view.b}, %`, number: true, cell: (o) => interval(o.speed_b, 100) },
    { name: "Power, W", number: true, cell: (o) => interval(o.power_w) },
    { name: "Energy saved, %", number: true, cell: (o) => interval(o.energy_saved, 100) },
    { name: "Work an hour", number: true, cell: (o) => interval(o.stp) },
    { name: "Limits", cell: (o) => o.misses.join("; ") },
  ];
  return table("All splits", columns, view.options, {
    rowClass: (option) => (option === best ? "chosen" : null),
  });
}

function interval(value, scale = 1) {
  const text = range(value, scale);
  return [number(scale * value.value), text ? [" ", html("small", {}, text)] : null];
}
