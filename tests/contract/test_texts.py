"""What the tracked files say: nothing about one machine, and a lock that fits the project."""

import hashlib
import importlib
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from advisor.errors import DISTRIBUTION
from advisor.settings import KEYS
from advisor_cli.app import app
from advisor_models.registry import read_artefact

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = ROOT / "requirements/dev.txt"
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
# Folders of one machine and addresses of package indexes; spelled so that this file passes too.
PRIVATE = re.compile(r"(?<![\w.])/(?:wor[k]|roo[t]|far[m])\b|pypi[.]org|pythonhoste[d]|/simpl[e]/")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_no_text_names_a_machine_or_registry() -> None:
    assert not [f"{name}: {hit}" for name, text in _texts() for hit in PRIVATE.findall(text)]


def test_each_test_that_a_page_or_ci_names_is_there() -> None:
    files = [*(ROOT / "tests").rglob("*.py")]
    known = {path.name for path in files} | {
        name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = {
        page.stem: set(re.findall(r"\btest_\w+(?:\.py)?", page.read_text()))
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert {page: names - known for page, names in named.items() if names - known} == {}
    assert len(named["attacks"]) > 80
    run = set(re.findall(r"\btests(?:/\w+)+(?:\.py)?", (ROOT / ".ci" / "run").read_text()))
    assert {(ROOT / path).exists() for path in run} == {True}


WORDS: dict[str, str] = PYPROJECT["tool"]["words"]
SPOKEN = re.compile(r"(?!docs/measurements|tests|.*/migrations/).*\.(py|js|lua|sh|md)")


def test_pages_help_messages_and_docstrings_use_the_plain_words() -> None:
    found = {name: _not_plain(text) for name, text in _texts() if SPOKEN.fullmatch(name)}
    assert ({name: hits for name, hits in found.items() if hits}, len(found) > 300) == ({}, True)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("gap", [" ", "\n    # ", ' "\n        f"'])
def test_each_word_is_found_across_lines(word: str, gap: str) -> None:
    texts = (f"(a: {text.replace(' ', gap)}." for text in (word, word[0].upper() + word[1:]))
    assert [*map(_not_plain, texts)] == 2 * [[f"{word}: {WORDS[word]}"]]


# Of a text, also across lines of a comment or of a message.
def _not_plain(text: str) -> list[str]:
    flat = re.sub(r'[\s"#]+(f")?', " ", text)
    return [
        f"{word}: {instead}"
        for word, instead in WORDS.items()
        if re.search(rf"\b(?i:{word[0]}){word[1:]}\b", flat)
    ]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_lock_is_pins_and_hashes_only(lock: Path) -> None:
    """Small ones have versions and hashes of the large one, with which the tests run."""
    line = re.compile(r"[a-z0-9-]+==[\w.]+( ; [^/]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    small, large = lock.read_text().splitlines(), LOCK.read_text().splitlines()
    assert not [text for text in small if not line.fullmatch(text)]
    assert {*map(_without_marker, small)} <= {*map(_without_marker, large)}


def _without_marker(line: str) -> str:
    return line.split(" ;")[0].rstrip(" \\")


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("run", ["serve"]),
        ("image", ["serve", "postgres"]),
        ("image-all", ["serve", "postgres", "train", "kubernetes"]),
    ],
)
def test_small_locks_cover_their_extras(lock: str, extras: list[str]) -> None:
    assert {need for need in _needs(*extras, "") if need not in _locked(lock)} == set()


def test_every_package_has_a_line_that_says_what_it_sends() -> None:
    row = r"^\| ((?!package )[a-z0-9][a-z0-9-]*) \|(.*)\|$"
    rows = re.findall(row, (ROOT / "docs/dependencies.md").read_text(), re.M)
    asked = _needs("", *PYPROJECT["project"]["optional-dependencies"])
    assert sorted(name for name, _ in rows) == sorted({*asked, *_locked("image-all")})
    assert {name for name, row in rows if row.count("|") == 4} == asked
    assert not [name for name, row in rows if any(not cell.strip() for cell in row.split("|"))]


def test_the_distribution_is_named_in_one_place() -> None:
    """Messages make the command of pip by it, so that none names what no index has."""
    assert PYPROJECT["project"]["name"] == DISTRIBUTION
    folders = ("advisor", "api", "data", "models", "profiling", "training")
    sources = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    named = [path for path in sources if DISTRIBUTION in path.read_text()]
    assert named == [ROOT / "advisor/errors.py"]


def _needs(*extras: str) -> set[str]:
    """Names that extras ask for, with those of other extras; "" is what every installation has."""
    project, found = PYPROJECT["project"], set[str]()
    for extra in extras:
        for text in project["optional-dependencies"][extra] if extra else project["dependencies"]:
            need = Requirement(text)
            own = need.name == project["name"]
            found |= _needs(*need.extras) if own else {canonicalize_name(need.name)}
    return found


def _locked(lock: str) -> set[str]:
    file = ROOT / "requirements" / f"{lock}.txt"
    return set(re.findall(r"^([a-z0-9-]+)==", file.read_text(), re.M))


def test_lock_covers_the_project() -> None:
    """A dependency that was added without `make lock` is noticed here, not in a fresh clone."""
    by_name = PYPROJECT["project"]["optional-dependencies"] | PYPROJECT["dependency-groups"]
    # Ray is not locked, which takes 240 MB.
    locked = [by_name[name] for name in by_name if name != "ray"]
    own = {PYPROJECT["project"]["name"]: "0"}
    pins = own | dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), flags=re.MULTILINE))
    assert not [
        text
        for group in (PYPROJECT["project"]["dependencies"], *locked)
        for text in group
        if pins.get(canonicalize_name((each := Requirement(text)).name), "") not in each.specifier
    ]


@pytest.mark.parametrize(
    ("name", "old"),
    [("requests", "2.32"), ("starlette", "1.2"), ("urllib3", "2.7"), ("uvicorn", "0.53")],
)
def test_no_version_that_safety_does_not_rest_on_is_asked_for(name: str, old: str) -> None:
    """Whoever installs without a lock has what an older environment had.

    No newer one is excluded, as it may mend a hole: not even where a class of it is subclassed.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = (*project["dependencies"], *project["optional-dependencies"]["serve"])
    (need,) = (need for text in texts if (need := Requirement(text)).name == name)
    assert (old in need.specifier, "99" in need.specifier) == (False, True)


def test_the_page_of_an_audit_has_the_table_that_was_measured() -> None:
    measured = (ROOT / "docs/measurements/audit.md").read_text()
    for block in json.loads((ROOT / "api/advisor_audit/against.json").read_text()):
        assert block["measured"] in measured
        assert all(f"|{'|'.join(row)}|" in measured for row in block["rows"])


def test_cards_say_what_is_there() -> None:
    """A hub shows what stands in front of them: figures of the manifest, and files that load."""
    model = ROOT / "models/advisor_models/bundled"
    card = runpy.run_path(str(ROOT / "docs/measurements/model/card.py"))
    manifest, text = read_artefact(model).manifest, (model / "README.md").read_text()
    assert text.startswith(card["front"](manifest))
    for row in (*card["facts"](manifest), *card["figures"](manifest)):
        assert f"| {' | '.join(row)} |" in text
    data = ROOT / "data/advisor_data/bundled"
    head = yaml.safe_load((data / "README.md").read_text().split("---\n")[1])
    files = {config["config_name"]: data / config["data_files"] for config in head["configs"]}
    assert set(files.values()) == {*data.glob("*.jsonl")}
    read_json: Any = importlib.import_module("pyarrow.json").read_json  # as the hub reads it
    assert 1_000 < sum(read_json(path).num_rows for path in files.values()) < 10_000
    assert head["size_categories"] == ["1K<n<10K"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_call_what_anybody_can_call(file: Path) -> None:
    """A step is an action by its commit, or one of our own commands; rights are named."""
    flow = yaml.safe_load(file.read_text())
    assert flow["permissions"] == {"contents": "read"}
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for step in (step for job in flow["jobs"].values() for step in job["steps"]):
        if called := step.get("run"):
            program, *words = called.split()
            assert program == ".ci/run" or (program == "make" and words[0] in targets)
        else:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])


def _texts() -> list[tuple[str, str]]:
    git = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run(
        [*git, "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [
        (name, (ROOT / name).read_text(errors="ignore"))
        for name in listed.stdout.split("\0")
        if (ROOT / name).is_file()
    ]


# The site of the pages: every link leads somewhere, and nothing asks another host.


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
    site = tmp_path / "site"
    pages = {str(p.relative_to(site)): p.read_text() for p in site.rglob("*.html")}
    for name, expected in {
        "cli": [f"advisor {command.name}" for command in app.registered_commands],
        "http": [*json.loads((ROOT / "api/openapi.json").read_text())["paths"]],
        "keys": [*KEYS, "start_timeout_s", "per_run"],
        "python": ["latency_bucket", "trainer_callback", "LaunchRequest", "SoloPoint"],
    }.items():
        assert not [word for word in expected if word not in pages[f"reference/{name}.html"]], name
    loaded = r'<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*'
    assert not [hit for text in pages.values() for hit in re.findall(loaded, text)]
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"url\(([\"']?https?:)?", styles).count("") > 1
    assert not re.findall(r"url\([\"']?https?:[^)]*", styles)
    assert (site / "searchindex.js").is_file()


def test_the_data_set_is_what_its_croissant_file_says(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "docs/measurements/sets/dataset.py", tmp_path], check=True
    )
    said = json.loads((tmp_path / "croissant.json").read_text("utf-8"))
    tables = {record["name"]: [f["name"] for f in record["field"]] for record in said["recordSet"]}
    assert [*tables] == ["windows", "jobs", "alone"]
    for name, columns in tables.items():
        assert (tmp_path / f"{name}.csv").read_text().split("\n")[0].split(",") == columns
    words = (tmp_path / "SHA256SUMS").read_text().split()
    sums = dict(zip(words[1::2], words[::2], strict=True))
    assert {file["name"]: file["sha256"] for file in said["distribution"]}.items() <= sums.items()
    for name, digest in sums.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
