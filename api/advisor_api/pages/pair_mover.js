// The split, moved by hand: a slider over the splits, and buttons for what is no split.

import { html, svg } from "./elements.js";
import { number, percent, share, withUnit } from "./numbers.js";

// The verdict, and what it is worth against one after the other.
export function headline({ given, way, a, b }) {
  const { verdict, gpu_model: gpu } = given;
  const [shareA, shareB] = way.jobs.map((job) => share(job.share_percent));
  const how = {
    limited: `give ${a} ${shareA} and ${b} ${shareB} of the ${gpu}`,
    uncapped: `${a} and ${b} without limits on the ${gpu}`,
  };
  const apart = `one after the other on the ${gpu}`;
  const text = {
    share: `Share: ${how[way.sharing]}. ${gain(way)}`,
    "your call": `Your call: ${apart}, or for time ${how[way.sharing]}. ${gain(way)}`,
    "do not share": `Do not share: run ${a} and ${b} ${apart}.`,
  };
  return html("p", { class: "headline", id: "headline", "data-verdict": verdict }, text[verdict]);
}

function gain({ stp, energy_saved: energy, cost_saved: cost }) {
  const said = [`${number(stp.value)} times the work an hour`, `${lessOrMore(energy.value)} energy`];
  if (cost) said.push(`${lessOrMore(cost.value)} money`);
  return `${said.join(", ")} than one after the other.`;
}

function lessOrMore(saved) {
  return `${percent(Math.abs(saved))} ${saved < 0 ? "more" : "less"}`;
}

// `onpick` gets the option that was chosen; `show` shows one.
export function mover(view, onpick) {
  const { splits, a, b } = view;
  const parts = ["a", "b"].map((tone) => svg("rect", { class: `fill-${tone}`, y: 0, height: 10 }));
  const bar = svg("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, parts);
  const ends = [html("span", { class: "tone-a" }), html("span", { class: "tone-b" })];
  const slider = html("input", {
    type: "range",
    id: "split",
    min: 0,
    max: Math.max(0, splits.length - 1),
    step: 1,
    disabled: splits.length === 0,
    oninput: () => onpick(splits[Number(slider.value)]),
  });
  const buttons = shortcuts(view).map(([text, option]) => ({
    option,
    element: html("button", { type: "button", onclick: () => onpick(option) }, text),
  }));
  const said = html("p", { class: "hint", role: "status", id: "said" });
  const element = html(
    "div",
    {},
    html("label", { for: "split" }, `Split between ${a} and ${b}: move it`),
    html("div", { class: "ends" }, ends),
    bar,
    slider,
    html("div", { class: "row" }, buttons.map((button) => button.element)),
    said,
  );
  return { element, show };

  function show(option) {
    const split = option.sharing === "limited";
    const shares = option.jobs.map((job) => job.share_percent);
    if (split) slider.value = splits.indexOf(option);
    const words = split ? `${share(shares[0])} for ${a}` : option.split;
    slider.setAttribute("aria-valuetext", words);
    const cut = split ? shares[0] : 50;
    bar.setAttribute("opacity", split ? 1 : 0.35);
    place(parts[0], 0, cut - 0.4);
    place(parts[1], cut + 0.4, 100 - cut - 0.4);
    ends[0].textContent = split ? `${a} ${share(shares[0])}` : a;
    ends[1].textContent = split ? `${share(shares[1])} ${b}` : b;
    for (const button of buttons) button.element.setAttribute("aria-pressed", button.option === option);
    said.textContent = spoken(view, option);
  }
}

function place(rect, x, width) {
  rect.setAttribute("x", x);
  rect.setAttribute("width", Math.max(0, width));
}

function shortcuts({ options, best, way }) {
  const found = [[`Best: ${best.split}`, best]];
  if (way !== best) found.push([`For time: ${way.split}`, way]);
  const named = { "50/50": "50/50", uncapped: "No limits", exclusive: "One after the other" };
  for (const option of options) {
    if (option.split in named && option !== best) found.push([named[option.split], option]);
  }
  return found;
}

// What a screen reader says, and everybody may read, when the split has moved.
function spoken({ a, b }, option) {
  const power = withUnit(option.power_w.value, "W");
  const [first, second] = option.jobs;
  const misses = option.violations.length ? ` Not allowed: ${option.violations.join("; ")}.` : "";
  return `${option.split}: ${a} at ${percent(first.speed.value)} and ${b} at ${percent(second.speed.value)} of full speed, ${power}.${misses}`;
}
