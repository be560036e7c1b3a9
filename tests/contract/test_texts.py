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

from advisor.installed import DISTRIBUTION
from advisor.settings import KEYS
from advisor_cli.app import app
from advisor_models.registry import read_manifest

ROOT = Path(__file__).parents[2]
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
    known = {path.name for path in files}
    known |= {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = {
        page.stem: set(re.findall(r"\btest_\w+(?:\.py)?", page.read_text()))
        for page in (ROOT / "docs").rglob("*.md")
    }
    assert {page: names - known for page, names in named.items() if names - known} == {}
    assert len(named["attacks"]) > 80
    run = set(re.findall(r"\btests(?:/\w+)+(?:\.py)?", (ROOT / ".ci" / "run").read_text()))
    assert run
    assert [path for path in run if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_lock_is_pins_and_hashes_only(lock: Path) -> None:
    """Small ones have versions and hashes of the large one, with which the tests run."""
    line = re.compile(r"[a-z0-9-]+==[\w.]+( ; [^/]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    texts = lock.read_text().splitlines()
    assert not [text for text in texts if not line.fullmatch(text)]
    assert set(map(_without_marker, texts)) <= set(
        map(_without_marker, LOCK.read_text().splitlines())
    )


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
    page = (ROOT / "docs/dependencies.md").read_text()
    rows = re.findall(r"^\| ([a-z0-9][a-z0-9-]*) \|(.*)\|$", page, re.M)
    listed = [name for name, _ in rows if name != "package"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = _needs("", *project["optional-dependencies"])
    assert sorted(listed) == sorted({*asked, *_locked("image-all")})
    assert {name for name, row in rows if row.count("|") == 4} - {"package"} == asked
    assert not [name for name, row in rows if any(not cell.strip() for cell in row.split("|"))]


def test_the_distribution_is_named_in_one_place() -> None:
    """Messages make the command of pip by it, so that none names what no index has."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION
    folders = ("advisor", "api", "data", "models", "profiling", "training")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = [str(path.relative_to(ROOT)) for path in sources if DISTRIBUTION in path.read_text()]
    assert named == ["advisor/installed.py"]


def _needs(*extras: str) -> set[str]:
    """Names that extras ask for, with those of other extras; "" is what every installation has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = set[str]()
    for extra in extras:
        asked = project["optional-dependencies"][extra] if extra else project["dependencies"]
        for text in asked:
            need = Requirement(text)
            own = need.name == project["name"]
            found |= _needs(*need.extras) if own else {canonicalize_name(need.name)}
    return found


def _locked(lock: str) -> set[str]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.M))


def test_lock_covers_the_project() -> None:
    """A dependency that was added without `make lock` is noticed here, not in a fresh clone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    by_name = project["project"]["optional-dependencies"] | project["dependency-groups"]
    # Ray is not locked, which takes 240 MB.
    locked = [by_name[name] for name in by_name if name != "ray"]
    groups = [project["project"]["dependencies"], *locked]
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), flags=re.MULTILINE))
    pins[project["project"]["name"]] = "0"
    wanted = {Requirement(text) for group in groups for text in group}
    assert not [
        str(each)
        for each in wanted
        if pins.get(canonicalize_name(each.name), "") not in each.specifier
    ]


@pytest.mark.parametrize(
    ("name", "old"), [("requests", "2.32"), ("starlette", "1.2"), ("urllib3", "2.7")]
)
def test_no_version_that_safety_does_not_rest_on_is_asked_for(name: str, old: str) -> None:
    """Whoever installs without a lock has what an older environment had."""
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
    manifest, text = read_manifest(model), (model / "README.md").read_text()
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
    names = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    return [(name, (ROOT / name).read_text(errors="ignore")) for name in names]


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


def test_the_data_set_is_what_its_croissant_file_says(tmp_path: Path) -> None:
    script = ROOT / "docs/measurements/sets/dataset.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    said = json.loads((tmp_path / "croissant.json").read_text("utf-8"))
    tables = {record["name"]: [f["name"] for f in record["field"]] for record in said["recordSet"]}
    assert [*tables] == ["windows", "jobs", "alone"]
    for name, columns in tables.items():
        assert (tmp_path / f"{name}.csv").read_text().split("\n")[0].split(",") == columns
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert {file["name"]: file["sha256"] for file in said["distribution"]}.items() <= sums.items()
    for name, digest in sums.items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
