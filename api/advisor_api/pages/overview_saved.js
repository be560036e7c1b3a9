// What sharing has saved, today and this week, and what that rests on.

import { html, link } from "./elements.js";
import { duration, energy, number, withUnit } from "./numbers.js";

const KWH_J = 3.6e6;
const HOUR_S = 3600;

export function saved({ today, week, gpus, running }) {
  return [
    html(
      "dl",
      { class: "tiles" },
      tile("Energy saved today", kwh(today.kwh_saved), `${kwh(week.kwh_saved)} this week`, today.kwh_saved),
      tile("GPU time saved today", hours(today.gpu_hours_saved), `${hours(week.gpu_hours_saved)} this week`, today.gpu_hours_saved),
      today.cost_saved === null
        ? null
        : tile("Money saved today", money(today.cost_saved), `${money(week.cost_saved)} this week`, today.cost_saved),
      atWork(gpus),
    ),
    html("p", { class: "quiet-text" }, basis(today, week, running)),
  ];
}

function tile(name, value, remark, sign = null) {
  return html("div", {}, html("dt", {}, name), html("dd", { class: sign !== null && sign < 0 ? "bad" : null }, value, html("small", {}, remark)));
}

function atWork(gpus) {
  const held = gpus.filter((gpu) => gpu.launch_id);
  const sum = (key) => gpus.reduce((total, gpu) => total + (gpu[key] ?? 0), 0);
  const limit = sum("power_limit_w");
  const watts = limit ? `${withUnit(sum("power_w"), "W")} of ${withUnit(limit, "W")}` : "";
  return tile("GPUs at work", gpus.length ? `${held.length} of ${gpus.length}` : "–", watts);
}

function basis(today, week, running) {
  if (!week.launches) return `${running.length ? "Too early to count: the first launches of the week have just begun." : "Nothing ran this week."} Savings are counted from launches: steps and energy that were observed.`;
  const parts = [
    `Observed, not predicted: steps and metered energy of ${launches(today.launches)} today and ${week.launches} this week,`,
    `which took ${kwh(today.kwh)} in ${hours(today.gpu_hours)} of GPU time today.`,
    "What they would have taken with a whole GPU for each job is worked out from the rates and powers of their profiles.",
    "Freed GPUs count as switched off",
  ];
  const idle = today.kwh_saved_idle;
  parts.push(idle === null ? "." : `; if they idle, ${idle < 0 ? `${kwh(-idle)} more were taken` : `${kwh(idle)} were saved`} today.`);
  if (week.uncounted) parts.push(` Not counted this week: ${launches(week.uncounted)}, of jobs without a profile, of wrong results, or of energy that was not read.`);
  if (week.gpu_hours_unread * HOUR_S >= 1) parts.push(` Energy not known for ${hours(week.gpu_hours_unread)} this week: none counts as saved in it.`);
  return parts.join(" ").replaceAll(" .", ".").replaceAll(" ;", ";");
}

function launches(count) {
  return `${count} ${count === 1 ? "launch" : "launches"}`;
}

function kwh(value) {
  return energy(value * KWH_J);
}

function hours(value) {
  return duration(value * HOUR_S);
}

function money(value) {
  return number(value, 3);
}

export function nothing() {
  return html(
    "div",
    { class: "notice", role: "status" },
    html("p", {}, "No GPU is seen on this host, and nothing was launched yet. On the host of a GPU: advisor launch A B"),
    html("p", {}, "To see this page move without one: advisor serve --demo. What jobs would do together is on the page of a ", link("set", "/set"), "."),
  );
}
