// One launch, live: what was predicted beside what is observed.

import { confirmed } from "./confirm.js";
import { html, link, notice } from "./elements.js";
import { content, explain, run, setTitle } from "./frame.js";
import { history } from "./launch_history.js";
import { beside, jobTable, standing } from "./launch_tables.js";
import { countedNames, over, splitName, stateText, verdict } from "./launch_words.js";
import { number, range } from "./numbers.js";
import { poll } from "./poll.js";
import { get, part, remove } from "./service.js";

run(async (query) => {
  const id = query.get("id");
  if (!id) {
    content.append(notice("", "Which launch? Choose one from the list of ", link("launches", "/launches")));
    return;
  }
  setTitle(`Launch ${id}`);
  const title = html("h1", {}, `Launch ${id}`);
  const state = html("p", { class: "headline", role: "status", id: "state" });
  const judged = html("p", { id: "verdict" });
  const shown = html("div", {});
  const tables = html("div", {});
  const stop = stopButton(id);
  const charts = history(id);
  content.append(title, state, judged, stop.element, shown, charts.element, tables);
  let drawn = "";
  poll(shown, async () => {
    const launch = await get(`/v1/launches/${part(id)}`);
    say(state, `${stateText(launch)}: ${countedNames(launch)}${launch.jobs.length ? `, ${splitName(launch)}` : ""}`);
    judge(judged, launch);
    stop.show(launch);
    await charts.look(launch);
    const now = JSON.stringify({ ...launch, updated_at: null });
    if (now !== drawn) {
      shown.replaceChildren(...parts(launch, shown.querySelector("details")?.open));
      tables.replaceChildren(...below(launch));
    }
    drawn = now;
    return !over(launch);
  });
});

// A status that is set again is read out again, even where it is the same.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A hit or a miss, and why: before any number.
function judge(element, launch) {
  const found = verdict(launch);
  element.replaceChildren(...(found ? [html("b", { class: found.good ? "good" : "bad" }, found.text), found.why ? ` ${found.why}` : ""] : []));
}

function parts(launch, open) {
  return [
    launch.cause ? notice("failed", `${launch.cause} (${launch.code})`) : null,
    launch.silent_s === null ? null : notice("failed", `Its supervisor has not been heard of for ${launch.silent_s} s: all that stands here is as of then, and no limit is proven.`),
    launch.warnings.length ? notes(launch.warnings, open) : null,
    launch.resplit && launch.resplit.refused === null ? notice("", `Another split, ${launch.resplit.split}, would do ${number(launch.resplit.worth.value)} times the work per joule (${range(launch.resplit.worth)}): advisor launches resplit ${launch.launch_id}`) : null,
    standing(launch),
  ].filter((element) => element !== null);
}

// Few stand where they are; many are folded.
function notes(warnings, open) {
  if (warnings.length < 3) return notice("warning", ...warnings);
  return html("details", { class: "notice warning", open }, html("summary", {}, `${warnings.length} notes`), warnings.map((text) => html("p", {}, text)));
}

function below(launch) {
  return [
    html("h2", {}, "Jobs"),
    jobTable(launch),
    html("h2", {}, "Predicted beside observed"),
    launch.forecast ? beside(launch) : notice("", "Nothing was predicted for these jobs: they were launched without a profile or a model."),
  ];
}

function stopButton(id) {
  const stop = async () => {
    const sure = await confirmed("Stop all jobs?", "They are stopped in the safe order, one after the other. This cannot be taken back.", "Stop them");
    if (!sure) return;
    button.disabled = true;
    try {
      await remove(`/v1/launches/${part(id)}`);
    } catch (error) {
      element.after(explain(error));
      button.disabled = false;
    }
  };
  const button = html("button", { type: "button", class: "danger", id: "stop", onclick: stop }, "Stop…");
  const element = html("div", { class: "row", hidden: true }, button); // until there is something to stop
  const show = (launch) => {
    element.hidden = over(launch);
    if (launch.state === "stopping") button.disabled = true;
  };
  return { element, show };
}
