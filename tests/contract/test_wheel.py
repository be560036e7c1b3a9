"""What gets installed: the built wheel, away from the checkout."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "advisor",
    "advisor_advice",
    "advisor_api",
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
        # Programs that commands start in another Python.
        *(
            ("profiling/workloads", "advisor_profiling/workloads", f"{name}*.py", f"{program}.py")
            for name, program in (
                ("library_", "library_check"),
                ("power_", "power_load"),
                ("kernel_", "kernel_power"),
                ("collectives", "collectives"),
                ("input_", "input_power"),
            )
        ),
    ],
)
def test_wheel_has_what_runs_where_it_is_installed(
    wheel: Path, folder: str, where: str, pattern: str, one_of_them: str
) -> None:
    there = [path for path in (ROOT / folder).glob(pattern) if path.is_file()]
    files = {f"{where}/{path.relative_to(ROOT / folder)}" for path in there}
    assert f"{where}/{one_of_them}" in files
    assert {name for name in files if "__pycache__" not in name} <= set(_names(wheel))


def test_wheel_has_types(wheel: Path) -> None:
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(_names(wheel))


def test_wheel_runs_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    # -S leaves out the .pth file of the editable install; -I leaves out the current folder.
    path = [str(tmp_path / "site"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    code = f"import sys; sys.path += {path}; import {', '.join(PACKAGES)}, advisor_cli, cProfile"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}; print(advisor.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(tmp_path / "site/advisor/__init__.py"), done.stderr


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()
