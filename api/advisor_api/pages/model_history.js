// When which model became the champion.

import { table } from "./elements.js";
import { moment } from "./numbers.js";

export function changes(history) {
  const columns = [
    { name: "When", cell: (change) => moment(change.at) },
    { name: "What", cell: (change) => (change.action === "promote" ? "promoted" : "rolled back") },
    { name: "New champion", cell: (change) => change.version },
    { name: "Instead of", cell: (change) => change.replaced },
  ];
  return table("History of the champion", columns, history, { stacked: true });
}
