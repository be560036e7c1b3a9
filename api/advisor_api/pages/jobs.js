// All jobs: what was measured of each, and which can be launched.

import { html, link, notice, table, tag } from "./elements.js";
import { FLAGS } from "./flags.js";
import { content, run } from "./frame.js";
import { moment, share } from "./numbers.js";
import { get } from "./service.js";

const FEW = 4;

run(async () => {
  content.append(html("h1", {}, "Jobs"));
  const { jobs } = await get("/v1/jobs");
  if (jobs.length === 0) {
    content.append(notice("", "There is no job yet. Measure one on the GPU: advisor profile --name NAME -- COMMAND"));
    return;
  }
  const shown = html("div", {});
  const count = html("span", { class: "hint", role: "status", id: "count" });
  const filter = html("input", {
    type: "search",
    id: "filter",
    "aria-label": "Filter the jobs",
    placeholder: "Name, GPU model or flag",
    oninput: () => show(),
  });
  content.append(
    html("p", { class: "quiet-text" }, "Each job was measured alone, at several shares of a GPU. Two of them make a ", link("pair", "/pair"), "."),
    html("div", { class: "row" }, filter, count),
    shown,
  );
  function show() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = jobs.filter((row) => words.every((word) => searched(row).includes(word)));
    count.textContent = `${rows.length} of ${jobs.length}`;
    shown.replaceChildren(
      rows.length ? list(rows) : notice("", "No job matches. Clear the filter to see all."),
    );
  }
  show();
});

function searched(row) {
  const words = [row.job, row.gpu_model ?? "not measured", ...row.flags, row.source, row.launchable && "launchable"];
  return words.join(" ").toLowerCase();
}

function list(rows) {
  const columns = [
    { name: "Job", cell: name },
    { name: "GPU model", cell: (row) => row.gpu_model ?? "not measured" },
    { name: "Shares", cell: (row) => shares(row.shares) },
    { name: "Points", number: true, cell: (row) => row.points || "" },
    { name: "Measured", cell: (row) => (row.measured_at ? moment(row.measured_at).slice(0, 10) : "") },
    { name: "Kind", cell: kind },
    { name: "Flags", cell: (row) => row.flags.map((flag) => tag(flag, "warn", FLAGS[flag])) },
  ];
  return table("Jobs", columns, rows, { stacked: true });
}

function name(row) {
  if (row.gpu_model === null) return row.job;
  return link(row.job, "/job", { name: row.job, gpu: row.gpu_model });
}

function kind(row) {
  const source = row.source ? tag(row.source) : null;
  return [source, row.launchable ? tag("launchable", "good", "A job file on the server describes it") : null];
}

function shares(values) {
  if (values.length > FEW) return `${share(values[0])} to ${share(values.at(-1))} (${values.length})`;
  return values.map(share).join(", ");
}
