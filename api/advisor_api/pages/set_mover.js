// The answer in words, what a way gains in large, and the shares moved by hand.

import { html } from "./elements.js";
import { saved } from "./gains.js";
import { percent, range, share, withUnit } from "./numbers.js";
import { measuredAt, SHARING_WORDS, slowest, tail } from "./set_view.js";
import { jobTones } from "./tones.js";

// The words of the command line.
export function answer({ given }) {
  const { headline, lines } = given.said;
  return html(
    "div",
    { class: "answer" },
    html("p", { class: "headline", id: "headline", "data-verdict": given.verdict }, headline),
    html("dl", { class: "said" }, lines.map(([name, text]) => html("div", {}, html("dt", {}, name || "\u00a0"), html("dd", {}, name === "Start" ? html("code", {}, text) : text)))),
  );
}

// What a way gains, in large.
export function tiles(view, option) {
  const p99 = tail(option);
  const worst = slowest(option);
  const found = measuredAt(view, option);
  const shown = [
    ["Energy", saved(option.energy_saved.value), "for the same work", savedRange(option.energy_saved)],
    ["GPU hours", saved(option.gpu_time_saved.value), "for the same work", savedRange(option.gpu_time_saved)],
    ["Slowest job", percent(Math.min(worst.speed.value, 1)), option.sharing === "exclusive" ? "each as alone" : worst.job, range(worst.speed, 100)],
    ...(p99 && option.sharing !== "exclusive" ? [["p99", withUnit(p99.value, "ms"), "of the slowest server", range(p99)]] : []),
  ];
  const told = found ? (found.own ? `measured here, ${windows(found)}` : `measured, ${windows(found)} that came with advisor`) : "predicted";
  return html(
    "div",
    {},
    html("p", { class: "quiet-text", id: "basis" }, `At ${option.split}: ${told}`),
    html("dl", { class: "tiles", id: "tiles" }, shown.map(([name, value, remark, between]) => html("div", {}, html("dt", {}, name), html("dd", {}, value, html("small", {}, remark), between ? html("small", {}, between) : null)))),
  );
}

function windows({ count }) {
  return count === 1 ? "1 window" : `${count} windows`;
}

function savedRange({ low, high }) {
  return Number.isFinite(low) && low !== high ? `${saved(low)} to ${saved(high)}` : "";
}

// `onpick` gets the option that was chosen; `show` shows one.
export function mover(view, onpick) {
  let chosen = view.way;
  const sliders = view.names.map((_, i) => slider(view, i, (level) => onpick(nearest(view, chosen, i, level))));
  const buttons = shortcuts(view).map(([text, option]) => ({ option, element: html("button", { type: "button", onclick: () => onpick(option) }, text) }));
  const said = html("p", { class: "hint", role: "status", id: "said" });
  const element = html("div", {}, sliders.map((one) => one.element), html("div", { class: "row" }, buttons.map((button) => button.element)), said);
  return {
    element,
    show: (option) => {
      chosen = option;
      sliders.forEach((one) => one.show(option));
      for (const button of buttons) button.element.setAttribute("aria-pressed", button.option === option);
      said.textContent = spoken(option);
    },
  };
}

// One job's share, over those at which it was looked at; 100 is no limit.
function slider({ options, names }, i, onlevel) {
  const sideBySide = options.filter((option) => option.sharing === "limited" || option.sharing === "uncapped");
  const levels = [...new Set(sideBySide.map((option) => option.jobs[i].share_percent))].sort((p, q) => p - q);
  const tone = jobTones(names)(names[i]);
  const id = `share-${i + 1}`;
  const value = html("span", { class: `ink tone-${tone}` });
  const input = html("input", {
    type: "range",
    id,
    min: 0,
    max: Math.max(1, levels.length - 1),
    value: 1,
    disabled: levels.length < 2,
    oninput: () => onlevel(levels[Number(input.value)]),
  });
  return {
    element: html("div", { class: "share" }, html("div", { class: "ends" }, html("label", { for: id }, names[i]), value), input),
    show: ({ jobs, sharing }) => {
      const level = jobs[i].share_percent;
      const words = sharing === "limited" ? (level < 100 ? share(level) : "no limit") : SHARING_WORDS[sharing];
      if (levels.length > 1 && levels.includes(level)) input.value = levels.indexOf(level);
      input.setAttribute("aria-valuetext", words);
      value.textContent = levels.length < 2 && sharing === "limited" ? "no limit: a small job" : words;
    },
  };
}

// The way with this share of one job that changes the others least.
function nearest({ options }, chosen, i, level) {
  const gap = (option) => option.jobs.reduce((sum, job, j) => sum + (j === i ? 0 : Math.abs(job.share_percent - chosen.jobs[j].share_percent)), 0);
  const there = options.filter((option) => option.jobs[i].share_percent === level && (option.sharing === "limited" || option.sharing === "uncapped"));
  return there.reduce((near, option) => (gap(option) < gap(near) ? option : near));
}

function shortcuts({ options, best, way }) {
  const found = [[`Best: ${best.split}`, best]];
  if (way !== best) found.push([`For time: ${way.split}`, way]);
  const named = { "50/50": "50/50", uncapped: "No limits", "time-sliced": "Time-sliced", exclusive: "Each alone" };
  for (const option of options) {
    if (option.split in named && option !== best && option !== way) found.push([named[option.split], option]);
  }
  return found;
}

// The text for screen readers, visible to all, when the shares have moved.
function spoken(option) {
  const speeds = option.jobs.map((job) => `${job.job} at ${percent(job.speed.value)}`).join(", ");
  const misses = option.violations.length ? ` Not allowed: ${option.violations.join("; ")}.` : "";
  return `${option.split}: ${speeds} of full speed, ${withUnit(option.power_w.value, "W")}.${misses}`;
}
