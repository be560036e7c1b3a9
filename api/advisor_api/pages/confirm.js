// A question before something that cannot be taken back.

import { html } from "./elements.js";

// Whether it was confirmed; Escape is no.
export function confirmed(question, remark, yes) {
  return new Promise((resolve) => {
    const no = html("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const sure = html("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, yes);
    const dialog = html(
      "dialog",
      { "aria-labelledby": "question" },
      html("h3", { id: "question" }, question),
      html("p", {}, remark),
      html("div", { class: "row" }, sure, no),
    );
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}
