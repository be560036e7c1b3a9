// The command that starts a way, what to set by hand, and the launch of it from here.

import { confirmed } from "./confirm.js";
import { html } from "./elements.js";
import { explain } from "./frame.js";
import { post } from "./service.js";

export function start(view, option, rows) {
  const launchable = view.names.every((job) => rows.some((row) => row.job === job && row.launchable));
  const byHand = lines(view, option);
  const row = html("div", { class: "row" });
  const status = html("span", { class: "hint", role: "status" });
  const text = command(view, option);
  // Browsers lend the clipboard to secure pages only.
  if (navigator.clipboard) {
    const copy = async () => {
      await navigator.clipboard.writeText(text);
      status.textContent = "Copied.";
    };
    row.append(html("button", { type: "button", onclick: copy }, "Copy"));
  }
  if (option.sharing !== "exclusive" && launchable) {
    row.append(html("button", { type: "button", onclick: () => launch(view, option, row) }, `Launch at ${option.split}…`));
  }
  row.append(status);
  return html(
    "div",
    {},
    html("pre", { id: "command", tabindex: "0" }, text),
    row,
    byHand ? html("details", {}, html("summary", {}, "By hand"), html("pre", { id: "environment", tabindex: "0" }, byHand.join("\n"))) : "",
  );
}

function command({ names, request }, { sharing, split }) {
  if (sharing === "exclusive") return `# each alone on a GPU: ${names.join(", ")}`;
  const { jobs, max_p99_ms: p99, max_power_w: watts } = request;
  const limits = [
    ...new Set(jobs.filter((one) => one.min_speed !== null).map((one) => ` --min-speed ${one.job}=${one.min_speed}`)),
    p99 === null ? "" : ` --max-p99 ${p99}ms`,
    watts === null ? "" : ` --max-power ${watts}`,
  ];
  return `advisor launch ${names.join(" ")} --split ${split}${limits.join("")}`;
}

// Null: nothing is to be set.
function lines({ names }, { sharing, split, jobs }) {
  if (sharing === "exclusive") return null;
  if (sharing === "time-sliced") return ["# start all on one GPU for which no MPS daemon runs"];
  if (split === "uncapped") return ["# start all as clients of one MPS daemon, without a percentage"];
  const environments = jobs.map((job) => job.environment);
  const of = (job, variables) => Object.entries(variables).flatMap(([name, value], i) => [...(i ? [] : [`# in the shell that starts ${job}`]), `export ${name}=${value}`]);
  return [
    ...names.flatMap((name, i) => of(name, environments[i])),
    environments.some((one) => "HSA_CU_MASK" in one)
      ? "# all with ROCR_VISIBLE_DEVICES set to the one GPU that they share"
      : "# all as clients of one MPS daemon",
  ];
}

async function launch({ names, request }, option, row) {
  const sure = await confirmed(
    `Launch ${names.join(", ")} at ${option.split}?`,
    "All jobs start on the GPU of the server now. Nothing runs before every limit is proven.",
    "Launch",
  );
  if (!sure) return;
  try {
    const begun = await post("/v1/launches", { jobs: request.jobs, max_p99_ms: request.max_p99_ms, max_power_w: request.max_power_w, split: option.split });
    location.assign(`/launch?id=${encodeURIComponent(begun.launch_id)}`);
  } catch (error) {
    row.after(explain(error));
  }
}
