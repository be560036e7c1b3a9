// What to set to get an option, ready to copy, and the launch of it from here.

import { confirmed } from "./confirm.js";
import { html } from "./elements.js";
import { explain } from "./frame.js";
import { post } from "./service.js";

export function environment(view, option, rows) {
  const text = lines(view, option).join("\n");
  const status = html("span", { class: "hint", role: "status" });
  const row = html("div", { class: "row" });
  // Browsers lend the clipboard to secure pages only.
  if (navigator.clipboard) {
    const copy = async () => {
      await navigator.clipboard.writeText(text);
      status.textContent = "Copied.";
    };
    row.append(html("button", { type: "button", onclick: copy }, "Copy"));
  }
  const launchable = (job) => rows.some((found) => found.job === job && found.launchable);
  if (option.sharing !== "exclusive" && launchable(view.a) && launchable(view.b)) {
    row.append(html("button", { type: "button", onclick: () => launch(view, option, row) }, `Launch at ${option.split}…`));
  }
  row.append(status);
  return html("div", {}, html("pre", { id: "environment", tabindex: "0" }, text), row);
}

function lines({ a, b }, option) {
  if (option.sharing === "exclusive") {
    return [`# run ${a}, and when it has ended ${b}; each has the whole GPU`];
  }
  if (option.sharing === "uncapped") {
    return ["# start both as clients of one MPS daemon, without a percentage"];
  }
  const [first, second] = option.jobs.map((job) => job.environment);
  const of = (job, variables) => [
    `# in the shell that starts ${job}`,
    ...Object.entries(variables).map(([name, value]) => `export ${name}=${value}`),
  ];
  return [
    ...of(a, first),
    ...of(b, second),
    "HSA_CU_MASK" in first
      ? "# both with ROCR_VISIBLE_DEVICES set to the one GPU that they share"
      : "# both as clients of one MPS daemon",
  ];
}

async function launch(view, option, row) {
  const sure = await confirmed(
    `Launch ${view.a} and ${view.b} at ${option.split}?`,
    "Both jobs start on the GPU of the server now. Nothing runs before both limits are proven.",
    "Launch",
  );
  if (!sure) return;
  try {
    const begun = await post("/v1/launches", { jobs: [{ job: view.a }, { job: view.b }], split: option.split });
    location.assign(`/launch?id=${encodeURIComponent(begun.launch_id)}`);
  } catch (error) {
    row.after(explain(error));
  }
}
