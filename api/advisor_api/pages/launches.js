// All launches, live.

import { html, link, notice, table } from "./elements.js";
import { content, run } from "./frame.js";
import { countedNames, powerOf, savedOf, ratedSpeed, splitName, stateTag } from "./launch_words.js";
import { duration, moment, percent, withUnit } from "./numbers.js";
import { poll } from "./poll.js";
import { get } from "./service.js";

run(async () => {
  content.append(html("h1", {}, "Launches"));
  const shown = html("div", {});
  content.append(shown);
  let drawn = "";
  poll(shown, async () => {
    const { launches } = await get("/v1/launches");
    const now = JSON.stringify(launches);
    // What has not changed is not drawn again: focus and selection stay.
    if (now !== drawn) shown.replaceChildren(list(launches));
    drawn = now;
    return true;
  });
});

function list(launches) {
  if (launches.length === 0) {
    return notice(
      "",
      "Nothing was launched yet. On the host of the GPU: advisor launch A B",
      html("span", {}, "From the page of a ", link("set", "/set"), " it takes a token with the scope launch, and a server that was started with advisor serve --launching."),
    );
  }
  const columns = [
    { name: "Launch", cell: (l) => html("span", { class: "whole" }, link(l.launch_id, "/launch", { id: l.launch_id })) },
    { name: "State", cell: (l) => [stateTag(l), l.cause ? html("small", { class: "cause" }, l.cause) : null] },
    { name: "Jobs", cell: countedNames },
    { name: "Split", cell: splitName },
    { name: "Relative speeds", cell: (l) => l.jobs.map((job) => ratedSpeed(job)).join(", ") },
    { name: "Power", number: true, cell: (l) => withUnit(powerOf(l), "W") },
    { name: "Energy saved (predicted)", number: true, cell: saved },
    { name: "Together for", number: true, cell: (l) => (l.overlap_s ? duration(l.overlap_s) : "") },
    { name: "Started", cell: (l) => html("span", { class: "whole" }, l.started_at ? moment(l.started_at) : "") },
  ];
  return table("Launches", columns, launches, { stacked: true });
}

// Observed, and what was predicted of it.
function saved(launch) {
  const predicted = launch.forecast?.energy_saved;
  return [percent(savedOf(launch)), predicted ? html("small", {}, ` (${percent(predicted.value)})`) : ""];
}
