"""What the tracked files say: nothing about one machine, and a lock that fits the project."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements/dev.txt"
# Folders of one machine and addresses of package indexes; spelled so that this file passes too.
PRIVATE = re.compile(r"(?<![\w.])/(?:wor[k]|roo[t]|far[m])\b|pypi[.]org|pythonhoste[d]|/simpl[e]/")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_no_text_names_a_machine_or_registry() -> None:
    """A path or host of the machine that wrote a file never reaches its reader."""
    assert not [f"{name}: {hit}" for name, text in _texts() for hit in PRIVATE.findall(text)]


def test_lock_is_pins_and_hashes_only() -> None:
    line = re.compile(r"[a-z0-9-]+==[\w.]+( ; [^/]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    assert not [text for text in LOCK.read_text().splitlines() if not line.fullmatch(text)]


def test_lock_covers_the_project() -> None:
    """A dependency that was added without `make lock` is noticed here, not in a fresh clone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    by_name = project["project"]["optional-dependencies"] | project["dependency-groups"]
    # Ray is not locked, which takes 240 MB.
    locked = [by_name[name] for name in by_name if name != "ray"]
    groups = [project["project"]["dependencies"], *locked]
    wanted = {Requirement(text) for group in groups for text in group}
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), flags=re.MULTILINE))
    own = project["project"]["name"]
    assert not [
        str(requirement)
        for requirement in wanted
        if requirement.name != own
        and pins.get(canonicalize_name(requirement.name), "") not in requirement.specifier
    ]


def _texts() -> list[tuple[str, str]]:
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run(
        [*git, "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    return [(name, (ROOT / name).read_text(errors="ignore")) for name in names]
