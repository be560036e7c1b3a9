"""Takes the pictures of the overview of docs/pages.md from a demonstration that runs.

    .venv/bin/advisor serve --demo &
    .venv/bin/python docs/pages/overview.py http://127.0.0.1:8765

It needs Chromium. Look at them before committing.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from renew import shorten

HERE = Path(__file__).parent

LOOKS = {"light": (1280, 1500), "dark": (1280, 1500), "phone": (390, 1700)}
"""Width of the window, and how many pixels of the page are shown at most."""

WAIT_MS = 3000


def main() -> None:
    """One picture for each look."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for look, (width, height) in LOOKS.items():
            _take(browser, sys.argv[1], look, width, height)


def _take(browser: Browser, address: str, look: str, width: int, height: int) -> None:
    path = HERE / f"overview-{look}.png"
    page = browser.new_page(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if look == "dark" else "light",
        reduced_motion="reduce",
    )
    page.goto(address)
    page.wait_for_selector(".gpu .spark")
    page.wait_for_timeout(WAIT_MS)
    page.screenshot(path=path, full_page=True)
    page.close()
    shorten(path, height, path)


if __name__ == "__main__":
    main()
