"""The site of the pages: every link leads somewhere, and nothing asks another host."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.settings import KEYS
from advisor_cli.app import app

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_site_is_whole_and_asks_nobody(tmp_path: Path) -> None:
    """A link to nothing, or a page that no list of pages names, leaves no site.

    It has all commands, routes and keys, and loads what is its own. One test: it takes a while, so
    only pages that have what is looked for are written; `make docs` writes all.
    """
    pytest.importorskip("furo", reason="the group docs is not installed")
    build = [sys.executable, ROOT / "docs/site/build.py", tmp_path / "site"]
    written = ["index", *(f"reference/{name}" for name in ("cli", "python", "http", "keys"))]
    done = subprocess.run([*build, *written], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {str(p.relative_to(tmp_path / "site")): p.read_text() for p in _files(tmp_path, "html")}
    for name, expected in {
        "cli": [f"advisor {command.name}" for command in app.registered_commands],
        "http": [*json.loads((ROOT / "api/openapi.json").read_text())["paths"]],
        "keys": [*KEYS, "start_timeout_s", "per_run"],
        "python": ["latency_bucket", "trainer_callback", "LaunchRequest", "SoloPoint"],
    }.items():
        missing = [word for word in expected if word not in pages[f"reference/{name}.html"]]
        assert not missing, name
    loaded = r'<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*'
    assert not [hit for text in pages.values() for hit in re.findall(loaded, text)]
    styles = [path.read_text() for path in _files(tmp_path, "css")]
    assert not [hit for text in styles for hit in re.findall(r"url\([\"']?https?:[^)]*", text)]
    assert (tmp_path / "site/searchindex.js").is_file()


def _files(folder: Path, kind: str) -> list[Path]:
    found = [*(folder / "site").rglob(f"*.{kind}")]
    assert found
    return found
