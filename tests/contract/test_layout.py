"""The rules of the layout that `make check` does not know: folders, names, light imports."""

import ast
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor_api.openapi import openapi_text

ROOT = Path(__file__).parents[2]
COMPONENTS = ("advisor", "profiling", "training", "models", "data", "api")


@pytest.mark.parametrize(
    "folder", ["profiling", "training", "models", "data", "api", "api/kubernetes"]
)
def test_component_folder_is_no_package(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


def test_root_does_not_hide_the_profiling_package(tmp_path: Path) -> None:
    """Python 3.15's cProfile imports `profiling.tracing`; that works from the repository root."""
    (tmp_path / "profiling").mkdir()
    (tmp_path / "profiling/__init__.py").touch()
    (tmp_path / "profiling/tracing.py").touch()
    code = "import profiling.tracing, cProfile; print(profiling.__file__)"
    done = _run([sys.executable, "-c", code], PYTHONPATH=str(tmp_path))
    assert done.stdout.strip() == str(tmp_path / "profiling/__init__.py"), done.stderr


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports them by their names alone, and collects none of two that are the same."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.slow
def test_who_catches_everything_says_why() -> None:
    """A comment stands beside each `except Exception`: a fault must not vanish by habit."""
    broad = re.compile(r" *except( Exception| BaseException)?( as \w+)?:")
    silent = [
        f"{path.relative_to(ROOT)}:{number}"
        for path, _ in _sources()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if broad.match(line) and "#" not in line
    ]
    assert silent == []


def test_what_a_job_may_have_replaced_is_opened_in_one_way() -> None:
    """Jobs run as our user, among our records: `advisor.files` waits for no FIFO of theirs.

    The shim, which imports nothing of ours, does so in a function of its own.
    """
    opening = re.compile(r"open|(read|write)_(bytes|text)")
    found = [
        path.relative_to(ROOT)
        for path, tree in _sources()
        if path.parent in (ROOT / "advisor/launch", ROOT / "advisor/runtime")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and opening.fullmatch(getattr(node.func, "id", getattr(node.func, "attr", "")))
    ]
    assert found == [Path("advisor/runtime/shim.py")]


def test_no_client_follows_a_redirect() -> None:
    """A token or a body goes to nobody else. A new client is tried as these are (docs/attacks.md).

    By default `requests` and `urllib3` follow redirects, and `httpx` does not.
    """
    libraries = {"aiohttp", "http.client", "httpx", "requests", "urllib.request", "urllib3"}
    sent, clients = list[str](), set[str]()
    for path, tree in _sources():
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                parent = node.module if isinstance(node, ast.ImportFrom) else None
                imported = {alias.name for alias in node.names}
                if libraries & {parent, *imported, *(f"{parent}.{one}" for one in imported)}:
                    clients.add(name)
            if isinstance(node, ast.Call):
                sent += [
                    f"{name}: {ast.unparse(keyword)}"
                    for keyword in node.keywords
                    if "redirect" in (keyword.arg or "")
                ]
                verbs = {"delete", "get", "patch", "post", "put", "request", "send"}
                called = ast.unparse(node.func).rpartition(".")
                is_session = name in clients and called[0].endswith(("requests", "session"))
                if is_session and called[2] in verbs:
                    assert "allow_redirects" in {keyword.arg for keyword in node.keywords}, name
    assert clients == {
        "advisor/client.py",
        "advisor/scrape/fetch.py",
        "api/advisor_audit/sources.py",
        "api/kubernetes/advisor_kubernetes/cluster.py",
        "profiling/advisor_profiling/telemetry/dcgm.py",
    }
    assert sorted(sent) == [
        "api/advisor_api/app.py: redirect_slashes=False",
        "api/kubernetes/advisor_kubernetes/cluster.py: redirect=False",
        "profiling/advisor_profiling/telemetry/dcgm.py: allow_redirects=False",
    ]


@pytest.mark.slow
def test_measuring_scripts_import_what_is_there() -> None:
    """They are run by hand, so nothing else tells that a name of theirs was moved or renamed."""
    modules = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts): set(_names(tree))
        for p, tree in _sources()
    }
    known = {name[name.index("advisor") :]: there for name, there in modules.items()}
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} {alias.name}"
        for path in sorted((ROOT / "docs/measurements").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in known
        for alias in node.names
        if alias.name not in known[node.module]
    ]
    assert wrong == []


HEAVY = ("sklearn", "fastapi", "sqlalchemy", "pandas", "matplotlib")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        ("advisor", (*HEAVY, "pynvml", "numpy", "pyarrow", "advisor_advice", "advisor_cli")),
        ("advisor_profiling.campaign.campaign, advisor_data", (*HEAVY, "numpy")),
        ("advisor_models.registry", (*HEAVY, "joblib")),
        ("advisor_cli", (*HEAVY, "numpy", "advisor_data")),
        (
            "advisor_cli.recommend, advisor_cli.measure.profile, advisor_cli.measure.colocate",
            HEAVY,
        ),
        (
            "advisor_cli.measure.doctor, advisor_cli.data",
            HEAVY,
        ),
    ],
)
def test_import_stays_light(modules: str, unwanted: tuple[str, ...]) -> None:
    done = _run([sys.executable, "-c", f"import sys, {modules}; print(*sys.modules)"])
    assert done.returncode == 0, done.stderr
    assert not set(unwanted) & set(done.stdout.split())


@functools.cache
def _sources() -> list[tuple[Path, ast.Module]]:
    """Every module of the packages, less migrations, which stay as they were."""
    packages = {p.parent for top in COMPONENTS for p in (ROOT / top).rglob("__init__.py")}
    paths = sorted(path for package in packages for path in package.glob("*.py"))
    return [(p, ast.parse(p.read_text("utf-8"))) for p in paths if "migrations" not in p.parts]


def _names(tree: ast.Module) -> Iterator[str]:
    """All that a module has, and what stands in its functions, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _run(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )


# The contract of the service: what is checked in is what is served.


FILE = Path(__file__).parents[2] / "api/openapi.json"

RENEW = ".venv/bin/python -m advisor_api.openapi > api/openapi.json"


def test_checked_in_contract_is_the_served_one() -> None:
    """A route, key or bound changes only where a reader of the file sees it."""
    assert FILE.read_text() == openapi_text(), f"after looking at what changed, run: {RENEW}"
