"""A headless Chromium that notes everything that goes wrong in a page."""

import json
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, Route, sync_playwright
from raw_server import RawServer
from waiting import PATIENCE_S

_FLAGS = (
    "--no-sandbox",  # the tests may run as root, where Chromium has none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# The contrast of each text with what it stands on, as WCAG 2 defines it; those below 4.5 to 1.
_PALE = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest("noscript")) continue;
    const style = getComputedStyle(element);
    const ink = light(rgba(element.closest("svg") ? style.fill : style.color));
    const paper = light(ground(element));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < 4.5 && !element.closest(":disabled")) found.push(`${text}: ${contrast}`);
  }
  return found;
}
"""


@dataclass
class Visit:
    """A tab on one service, and what went wrong in it."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])

    def open(self, path: str, *, unfold: bool = False) -> None:
        self.page.goto(self.origin + path)
        self.drawn()
        self.page.eval_on_selector_all(".fold", f"(all) => all.map((o) => o.open = {int(unfold)})")

    def forget(self) -> None:
        """As a fresh tab, but for what is stored: nothing is played, and nothing went wrong."""
        self.page.unroute_all()
        self.page.goto("about:blank")
        self.problems.clear()
        self.asked.clear()

    def drawn(self) -> None:
        """Wait until the page has what it asked for."""
        self.page.wait_for_selector("#content:not([aria-busy])")

    def text(self, selector: str) -> str:
        """What stands there, with plain spaces."""
        return self.page.inner_text(selector).replace("\u00a0", " ")

    def too_wide(self) -> int:
        """By how many pixels the page must be scrolled sideways."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def cut(self) -> list[str]:
        """Tables that must be scrolled sideways in themselves."""
        return self.page.evaluate(
            "[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth)"
            ".map((e) => `${e.ariaLabel}: ${e.scrollWidth} in ${e.clientWidth}`)"
        )

    def pale(self) -> list[str]:
        """Texts with too little contrast."""
        return self.page.evaluate(_PALE)

    def violations(self, *rules: str) -> list[str]:
        """What axe-core finds that a reader who cannot see, or use a mouse, would stumble on.

        By these rules, or by all but the one that takes longest and is `pale`.
        """
        kind = pytest.importorskip("axe_playwright_python.sync_playwright").Axe
        # A page takes half a megabyte of program once.
        axe = kind("null") if self.page.evaluate("'axe' in window") else kind()
        only = {"runOnly": rules} if rules else {"rules": {"color-contrast": {"enabled": False}}}
        options = {"resultTypes": ["violations"], **only}
        found = axe.run(self.page, options=options).response["violations"]
        return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]

    def weight(self) -> int:
        """Bytes of the page, its files and its answers, as they were sent."""
        entries = "performance.getEntriesByType"
        return self.page.evaluate(
            f"[...{entries}('navigation'), ...{entries}('resource')]"
            ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
        )

    def play(self, path: str, *answers: Any, status: int = 200) -> list[str]:
        """Answer requests of a path in place of the service; the last answer is repeated.

        Returns:
            The methods that are asked for, as they come.
        """
        left, methods = list(answers), list[str]()

        def fulfill(route: Route) -> None:
            methods.append(route.request.method)
            body = json.dumps(left.pop(0) if len(left) > 1 else left[0])
            route.fulfill(status=status, content_type="application/json", body=body)

        self.page.route(self.origin + path, fulfill)
        return methods


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; skips where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("needs Chromium: Debian package chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        try:
            yield chromium
        finally:
            chromium.close()


@pytest.fixture(scope="module")
def tab(browser: Browser, served: RawServer) -> Iterator[Visit]:
    """One for all tests of a module: a new one takes longer than most of them."""
    with visiting(browser, served.port) as visit:
        yield visit


@pytest.fixture
def visit(tab: Visit) -> Iterator[Visit]:
    tab.forget()
    yield tab
    assert tab.problems == []


@contextmanager
def visiting(browser: Browser, port: int) -> Generator[Visit]:
    """A fresh tab, without anything that another one has kept."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(1000 * PATIENCE_S)
    visit = Visit(context.new_page(), f"http://127.0.0.1:{port}")
    _note(visit)
    try:
        yield visit
    finally:
        context.close()


def picture(page: Page, path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    return page.screenshot(path=path, full_page=True)


def _note(visit: Visit) -> None:
    problems = visit.problems

    def request(url: str, method: str) -> None:
        visit.asked.append(f"{method} {url.removeprefix(visit.origin)}")
        if not url.startswith(f"{visit.origin}/"):
            problems.append(f"another host: {url}")

    def failed(asked: Request) -> None:
        # A tab that goes on to another page gives up what the last one still waits for.
        if asked.failure != "net::ERR_ABORTED":
            problems.append(f"failed: {asked.url} ({asked.failure})")

    page = visit.page
    page.on("request", lambda asked: request(asked.url, asked.method))
    page.on("requestfailed", failed)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on(
        "console",
        lambda said: (
            problems.append(f"{said.type}: {said.text}")
            if said.type in ("error", "warning")
            else None
        ),
    )
