"""Prints what each page weighs, how often it asks, and when it can be seen, as a table.

    .venv/bin/python docs/measurements/pages_weight.py
    .venv/bin/python docs/measurements/pages_weight.py --url http://127.0.0.1:8765

Without --url a service of its own is started on an empty home, with the bundled jobs and model.
Each page is opened twice in a fresh tab of a headless Chromium (Debian: chromium), nothing cached;
the second time counts, in which the service has answered the page's questions before; when it was
drawn the first time stands beside it. Bytes are
those of bodies as they are sent, up to half a second after the page was drawn; painted is the first
contentful paint, drawn is when the page says that it is whole. Takes about a minute.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

GPU = "gpu=NVIDIA%20H200"

PAGES = (
    "/",
    "/jobs",
    f"/job?name=bert-serve-30&{GPU}",
    f"/matrix?{GPU}",
    f"/set?jobs=bert-serve-30%2Btriad&{GPU}",
    f"/set?jobs=bert-serve-30%2Bbert-serve-30%2Bvit-train%2Btriad&{GPU}",
    f"/queue?jobs=bert-infer-b2:4,triad:3,vit-train:5&gpus=4&{GPU}",
    "/launches",
    "/models",
    "/model?version=bundled",
    "/docs",
)

_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
_ALL = (
    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
)
_BYTES = f"{_ALL}.reduce((sum, one) => sum + one.encodedBodySize, 0)"
_ASKED = f"{_ALL}.length"
_WAITED_MS = 120_000

_SETTLING_MS = 500
"""In which a page that asks again and again has asked once."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One opening of a page."""

    bytes: int
    requests: int
    painted_ms: float
    drawn_ms: float


def main() -> None:
    """Start a service where none is named, open every page, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--url", help="a service that runs")
    url = parser.parse_args().url
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("needs Chromium: Debian package chromium")
    with serving(url) as origin, sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        print("| page | kB | requests | painted, ms | drawn, ms | drawn the first time, ms |")
        print("|---|---|---|---|---|---|")
        for path in PAGES:
            first = opened(browser, origin, path)
            seen = opened(browser, origin, path)
            times = f"{seen.painted_ms:.0f} | {seen.drawn_ms:.0f} | {first.drawn_ms:.0f}"
            print(f"| `{path}` | {seen.bytes / 1000:.0f} | {seen.requests} | {times} |")
        browser.close()


@contextmanager
def serving(url: str | None) -> Generator[str]:
    """The address of a service."""
    if url:
        yield url.rstrip("/")
        return
    command = [sys.executable, "-m", "advisor", "serve", "--port", "0"]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "ADVISOR_HOME": str(Path(home) / "home")}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                assert process.stdout is not None
                yield next(
                    word for line in process.stdout for word in line.split() if "://" in word
                ).rstrip("/.,")
            finally:
                process.terminate()


def opened(browser: Browser, origin: str, path: str) -> Seen:
    """A page in a fresh tab."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(origin + path)
    page.wait_for_selector("#content:not([aria-busy])", timeout=_WAITED_MS)
    drawn_ms = page.evaluate("performance.now()")
    page.wait_for_timeout(_SETTLING_MS)
    seen = Seen(page.evaluate(_BYTES), page.evaluate(_ASKED), page.evaluate(_PAINTED), drawn_ms)
    context.close()
    return seen


if __name__ == "__main__":
    main()
