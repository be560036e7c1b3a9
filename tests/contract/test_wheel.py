"""What gets installed: the built wheel, away from the checkout."""

import os
import re
import runpy
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from host import FakeHost

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


def test_wheel_claims_only_our_names(wheel: Path) -> None:
    """Installing puts nothing but the prefixed packages and their metadata on the path."""
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
        ("docs", "advisor/suite/docs", "[!d]*.md", "progress.md"),
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
    """An index shows the README where there is no docs/ beside it."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in _names(wheel) if name.endswith("/METADATA")))
    assert b"Which GPU jobs belong" in metadata
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
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_wheel_runs_away_from_the_checkout(site: Path, tmp_path: Path) -> None:
    code = f"import {', '.join(PACKAGES)}, advisor_cli, cProfile; print(advisor.__file__)"
    done = _python(site, code, tmp_path, dict(os.environ))
    assert done.stdout.strip() == str(site / "advisor/__init__.py"), done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("recommend", "bert-serve-30", "triad"), "advisor launch bert-serve-30 triad"),
        (("launch", "bert-serve-30", "triad", "--dry-run"), "bert-serve-30 + triad at "),
        (("launch", "bert-serve-30", "mine", "--dry-run"), "no job mine among the 0 job files"),
        (("jobs",), "advisor jobs --bundled"),
        (("data", "import", "x.jsonl"), "suite/docs/schema.md"),
        (("profile", "triad", "--gpu", "replay", "--shares", "50,100"), "triad on NVIDIA H200"),
        (("power", "components", "triad"), "triad alone"),
    ],
)
def test_what_the_readme_shows_works_in_an_empty_folder(
    site: Path, host: FakeHost, words: tuple[str, ...], said: str
) -> None:
    """Each with an empty home, and with the next command that is printed."""
    (host.folder / "nvml/gpu0/name").write_text("NVIDIA H200")
    environment = host.environment()
    del environment["ADVISOR_JOBS"]
    code = f"import sys; sys.argv = {['advisor', *words]}; from advisor_cli import main; main()"
    (host.folder / "empty").mkdir()
    (host.folder / "empty/x.jsonl").write_text("[]")
    done = _python(site, code, host.folder / "empty", environment)
    assert said in done.stdout + done.stderr


def test_programs_of_its_jobs_find_it(site: Path, tmp_path: Path) -> None:
    """They run under a Python with PyTorch, which may not have advisor."""
    folder = site / "advisor/suite/profiling/workloads"
    code = f"import sys; sys.path = [p for p in sys.path if p != {str(site)!r}] + [{str(folder)!r}]"
    done = _python(site, f"{code}; import harness; print(harness.Progress)", tmp_path, {})
    assert "advisor.progress.Progress" in done.stdout, done.stderr


def _python(
    site: Path, code: str, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    # -S leaves out the .pth file of the editable install; -I leaves out the current folder.
    path = [str(site), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {path}; {code}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()
