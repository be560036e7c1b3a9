"""What gets installed: the built wheel, away from the checkout."""

import itertools
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from forked import run_forked
from host import FakeHost
from page_blocks import blocks, commands, pages, why_not_run
from page_reader import write_reader

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "advisor",
    "advisor_advice",
    "advisor_api",
    "advisor_audit",
    "advisor_cli",
    "advisor_data",
    "advisor_kubernetes",
    "advisor_models",
    "advisor_node",
    "advisor_power",
    "advisor_profiling",
    "advisor_training",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = ["-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_wheel_claims_only_our_names(wheel: Path) -> None:
    top = {name.split("/")[0] for name in _names(wheel)}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES


@pytest.mark.parametrize(
    ("folder", "where", "pattern", "one_of_them"),
    [
        ("data/advisor_data/migrations", "advisor_data/migrations", "**/*", "env.py"),
        ("api/advisor_api/pages", "advisor_api/pages", "*", "shell.html"),
        ("data/advisor_data/bundled", "advisor_data/bundled", "**/*", "solo.jsonl"),
        ("models/advisor_models/bundled", "advisor_models/bundled", "*", "speed.trees"),
        (
            "models/advisor_models/bundled_one_window",
            "advisor_models/bundled_one_window",
            "*",
            "rate.trees",
        ),
        # What advice names, and the programs of it.
        ("jobs", "advisor/suite/jobs", "**/*.yaml", "triad.yaml"),
        ("docs", "advisor/suite/docs", "[!d]*.md", "job-file.md"),
        ("profiling/workloads", "advisor/suite/profiling/workloads", "*", "harness.py"),
    ],
)
def test_wheel_has_what_runs_where_it_is_installed(
    wheel: Path, folder: str, where: str, pattern: str, one_of_them: str
) -> None:
    there = [path for path in (ROOT / folder).glob(pattern) if path.is_file()]
    files = {f"{where}/{path.relative_to(ROOT / folder)}" for path in there}
    assert f"{where}/{one_of_them}" in files
    assert {name for name in files if "__pycache__" not in name} <= set(_names(wheel))


def test_links_of_its_description_are_whole(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in _names(wheel) if name.endswith("/METADATA")))
    assert b"Put two to seven GPU jobs on one card" in metadata
    assert re.findall(rb"\]\((?!https://)[^)]*", metadata) == []
    built = runpy.run_path(str(ROOT / "hatch_build.py"))
    place = {
        "GITHUB_SERVER_URL": "https://host",
        "GITHUB_REPOSITORY": "a/b",
        "GITHUB_REF_NAME": "v1",
    }
    readme = (ROOT / "README.md").read_text()
    whole = built["whole_links"](readme, built["source_address"](place))
    files = re.findall(r"\]\(https://host/a/b/blob/v1/([^)#?]*)", whole)
    assert len(files) == len(re.findall(r"\]\((?!https:)", readme)) > 20
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_wheel_has_types(wheel: Path) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(_names(wheel))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment in which the wheel is installed; what it needs is that of the tests."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # A path in such a file brings no editable install along, whose own file is not read there.
    theirs = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "needed.pth").write_text("\n".join(theirs))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet"]
    options = ["--no-deps", "--no-index", "--no-compile", "--ignore-installed"]
    subprocess.run([*pip, *options, wheel], check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_wheel_runs_away_from_the_checkout(bare: Path, tmp_path: Path) -> None:
    code = f"import {', '.join(PACKAGES)}, advisor_cli, cProfile; print(advisor.__file__)"
    done = _said(bare, "python", "-c", code, folder=tmp_path)
    assert done.startswith(str(bare)), done
    for name in ("advisor", "sm-advisor"):
        assert _said(bare, name, "--version", folder=tmp_path).startswith("advisor 0.")


def test_programs_of_its_jobs_find_it(bare: Path, tmp_path: Path) -> None:
    harness = next(bare.rglob("advisor/suite/profiling/workloads"))
    site = harness.parents[3]
    code = (
        f"import sys; sys.path = [p for p in sys.path if p != {str(site)!r}] + [{str(harness)!r}]"
    )
    said = _said(bare, "python", "-c", f"{code}; import harness; print(harness.Progress)")
    assert "advisor.progress.Progress" in said, said


@pytest.mark.slow
def test_what_pages_show_runs_in_an_empty_folder(bare: Path, host: FakeHost) -> None:
    """Each command that needs no GPU, cluster or network, with what the page says is there.

    One test: most pages show a command that another one shows, too.
    """
    environment, folder = _readers(bare, host)
    shown = [
        (f"{block.page}:{line}: {command}", shlex.split(command, comments=True))
        for block in itertools.chain(*map(blocks, pages()))
        for line, command in commands(block)
        if why_not_run(command) is None
    ]
    failed, seen = list[str](), set[str]()
    for place, words in shown:
        set_first = dict(word.split("=") for word in itertools.takewhile(_SET.match, words))
        words = [*itertools.takewhile("|".__ne__, words[len(set_first) + 1 :])]
        if shlex.join(words) in seen:
            continue
        seen.add(shlex.join(words))
        done = run_forked(words, environment | set_first, folder, python=str(bare / "bin/python"))
        # A fake host lacks some of what a doctor looks for.
        if done.returncode and words != ["doctor"]:
            failed.append(f"{place}\n{done.returncode}: {done.stderr[-600:]}")
    assert len(seen) >= 45
    assert not failed, "\n".join(failed)


@pytest.mark.slow
def test_python_of_its_page_runs(bare: Path, host: FakeHost) -> None:
    environment, folder = _readers(bare, host)
    text = "".join(b.text for b in blocks(ROOT / "docs/python.md") if b.language == "python")
    assert "advisor.recommend(" in text
    command = [bare / "bin/python", "-W", "error", "-c", text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_SET = re.compile("[A-Z_]+=")


def _readers(bare: Path, host: FakeHost) -> tuple[dict[str, str], Path]:
    """Environment and folder of a reader who has the jobs and files that pages speak of."""
    (host.folder / "nvml/gpu0/name").write_text("NVIDIA H200")
    environment = host.environment()
    del environment["ADVISOR_JOBS"]
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # nothing of the wheel was compiled yet
    folder = host.folder / "reader"
    write_reader(folder, host.write_job)
    bring_in = ["data", "import", "mine.jsonl"]
    done = run_forked(bring_in, environment, folder, python=str(bare / "bin/python"))
    assert done.returncode == 0, done.stderr
    return environment, folder


def _said(bare: Path, *command: str, folder: Path | None = None) -> str:
    done = subprocess.run(
        [bare / "bin" / command[0], *command[1:]],
        cwd=folder,
        env={"HOME": str(folder or bare)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()
