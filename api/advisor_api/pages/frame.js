// What all pages have: which page is open, the token, errors in words.

import { html, notice } from "./elements.js";
import { keepToken, ServiceError, token } from "./service.js";

export const content = document.getElementById("content");

const SECTIONS = { "/job": "/jobs", "/model": "/models", "/launch": "/launches" };

// Runs a page: `draw` fills the content, and what it cannot get is said in its place.
export async function run(draw) {
  markSection();
  prepareToken();
  content.setAttribute("aria-busy", "true");
  try {
    await draw(new URLSearchParams(location.search));
  } catch (error) {
    content.append(explain(error));
  }
  content.removeAttribute("aria-busy");
}

export function setTitle(text) {
  document.title = `${text} · advisor`;
}

// An error as a notice; where a token is wanted, the field for one opens.
export function explain(error) {
  if (error instanceof ServiceError) {
    if (error.wantsToken) openToken(error);
    const id = error.requestId ? ` (${error.code}, request ${error.requestId})` : ` (${error.code})`;
    return notice("failed", error.message + id);
  }
  // A mistake in these pages: it must be seen in the console too.
  console.error(error);
  return notice("failed", `This page could not be drawn: ${error.message}`);
}

function markSection() {
  const here = SECTIONS[location.pathname] ?? location.pathname;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === here) link.setAttribute("aria-current", "page");
  }
}

const panel = document.getElementById("token-panel");
const button = document.getElementById("token-button");

function prepareToken() {
  button.textContent = token() ? "Token set" : "Token";
  button.addEventListener("click", () => (panel.hidden ? openToken(null) : closeToken()));
}

function closeToken() {
  panel.hidden = true;
  button.setAttribute("aria-expanded", "false");
}

function openToken(error) {
  if (!panel.hidden && !error) return;
  const input = html("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-hint" });
  const form = html(
    "form",
    { class: "panel", onsubmit: use(() => input.value.trim()) },
    error ? html("p", { role: "alert" }, why(error)) : null,
    html("label", { for: "token" }, "Token"),
    html(
      "div",
      { class: "row" },
      input,
      html("button", { class: "main" }, "Use this token"),
      token() ? html("button", { type: "button", onclick: use(() => null) }, "Forget it") : null,
    ),
    html(
      "p",
      { class: "hint", id: "token-hint" },
      "It is kept in this tab only, until the tab is closed. On the server: ",
      html("code", {}, "advisor tokens create NAME --scope read"),
    ),
  );
  panel.replaceChildren(form);
  panel.hidden = false;
  button.setAttribute("aria-expanded", "true");
  input.focus();
}

function why(error) {
  if (error.status === 403) return "The token does not allow this; another one may.";
  return token() ? "The service does not know this token, or it has ended." : "The service wants a token.";
}

function use(token) {
  return (event) => {
    event.preventDefault();
    keepToken(token());
    location.reload();
  };
}
