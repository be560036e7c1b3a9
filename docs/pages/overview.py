"""Takes pictures of docs/pages.md from a demonstration that runs: of the overview and the matrix.

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

LOOKS = {
    "overview-light": ("/", ".gpu .spark", 1280, 1500),
    "overview-dark": ("/", ".gpu .spark", 1280, 1500),
    "overview-phone": ("/", ".gpu .spark", 390, 1700),
    "matrix": ("/matrix", ".matrix", 1280, 1700),
}
"""Page, what is waited for, width of the window, and how much of the page is shown at most, px."""


def main() -> None:
    """One picture for each look."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, look in LOOKS.items():
            _take(browser, name, *look)


def _take(browser: Browser, name: str, at: str, sign: str, width: int, height: int) -> None:
    path, scheme = HERE / f"{name}.png", "dark" if name.endswith("dark") else "light"
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(sys.argv[1] + at)
    page.wait_for_selector(sign)
    page.wait_for_timeout(3000)
    # A matrix is of profiles: nothing of it is replayed.
    page.locator("#content" if at == "/matrix" else "body").screenshot(path=path)
    page.close()
    shorten(path, height, path)


if __name__ == "__main__":
    main()
