// Four small charts over the split, which can be dragged as the slider can.

import { chart } from "./chart.js";
import { html } from "./elements.js";
import { number } from "./numbers.js";
import { isWhole, measuredSpots, spot } from "./set_view.js";
import { jobTones } from "./tones.js";

const NINE = [10, 20, 30, 40, 50, 60, 70, 80, 90];

export function charts(view, onpick) {
  const tone = jobTones(view.names);
  const drawn = [
    make(view, onpick, "Relative speed", "% of alone on the whole GPU", 100, [
      [tone(view.names[0]), view.names[0], (o) => o.jobs[0].speed],
      [tone(view.names[1]), view.names[1], (o) => o.jobs[1].speed, true],
    ]),
    make(view, onpick, "Power", "W", 1, [["power", "", (o) => o.power_w]]),
    make(view, onpick, "Energy saved for the same work", "%", 100, [["power", "", (o) => o.energy_saved]]),
    make(view, onpick, "Work an hour", "one job alone is 1", 1, [["power", "", (o) => o.stp]]),
  ];
  const points = view.measured.length
    ? "Hollow marks were measured. "
    : "This pair was never measured; all of this is predicted. ";
  return {
    element: html("div", { class: "charts large" }, drawn.map((one) => one.figure)),
    explained: `Lines and full marks are predicted, with the range that is to hold the measured value. ${points}Marks off the line are splits that leave a part of the GPU free. The solid upright line is the chosen split: drag it. The dashed green one is the best.`,
    show: (option) => drawn.forEach((one) => one.now(spot(option))),
  };
}

function make(view, onpick, title, unit, scale, lines) {
  const measured = measuredSpots(view);
  const slots = [
    ...view.options.filter((option) => option.sharing !== "limited").map((option) => option.split),
    ...measured.map((point) => point.spot.slot).filter(Boolean),
  ];
  return chart({
    title,
    unit,
    x: { label: `share of ${view.a}, %`, domain: domain(view), ticks: NINE },
    slots: [...new Set(slots)].map((key) => ({ key, label: key })),
    series: lines.map(([tone, name, pick, square]) => ({
      ...{ tone, name, square },
      points: view.splits.filter(isWhole).map((option) => ({ ...spot(option), ...scaled(pick(option), scale) })),
      apart: view.splits.filter((option) => !isWhole(option)).map((option) => ({ ...spot(option), ...scaled(pick(option), scale) })),
      slots: Object.fromEntries(view.options.filter((option) => option.sharing !== "limited").map((option) => [option.split, scaled(pick(option), scale)])),
    })),
    measured: measured.flatMap((point) =>
      lines.map(([tone, , pick, square]) => ({ ...point.spot, tone, square, y: scale * pick(point) })),
    ),
    best: spot(view.best),
    nowText: (value) => number(value),
    onpick: (place) => onpick(nearest(view, place)),
  });
}

function scaled({ value, low, high }, scale) {
  return { y: scale * value, low: scale * low, high: scale * high };
}

function domain({ splits }) {
  const shares = splits.map((option) => option.jobs[0].share_percent);
  return [Math.min(10, ...shares), Math.max(90, ...shares)];
}

// The option that is nearest to a place on a chart; time-slicing is measured, but no option.
function nearest(view, place) {
  const { splits, options, best } = view;
  if (place.slot) return options.find((option) => option.split === place.slot) ?? best;
  const gap = (option) => Math.abs(option.jobs[0].share_percent - place.x);
  return splits.reduce((near, option) => (gap(option) < gap(near) ? option : near), splits[0] ?? best);
}
