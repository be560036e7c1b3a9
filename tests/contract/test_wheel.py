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


def test_wheel_is_complete(wheel: Path) -> None:
    """Types reach other projects, and migrations reach the machine that has the database."""
    names = set(_names(wheel))
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    migrations = {
        str(path.relative_to(ROOT / "data"))
        for path in (ROOT / "data/advisor_data/migrations").rglob("*")
        if path.suffix in {".py", ".mako"}
    }
    assert migrations
    assert migrations <= names


def test_wheel_has_the_pages(wheel: Path) -> None:
    """The service shows its pages where the package was installed."""
    folder = ROOT / "api/advisor_api/pages"
    pages = {f"advisor_api/pages/{file.name}" for file in folder.iterdir() if file.is_file()}
    assert "advisor_api/pages/shell.html" in pages
    assert pages <= set(_names(wheel))


def test_wheel_has_the_measurements(wheel: Path) -> None:
    """Replays and the report work where the package was installed; the data brings its card."""
    files = {"solo.jsonl", "references.jsonl", "pairs.jsonl", "README.md"}
    assert {f"advisor_data/bundled/{name}" for name in files} <= set(_names(wheel))


def test_wheel_has_all_that_is_bundled(wheel: Path) -> None:
    """Checks, records of sensors, recordings and kernels, too."""
    folder = ROOT / "data"
    files = (file for file in (folder / "advisor_data/bundled").rglob("*") if file.is_file())
    assert {str(file.relative_to(folder)) for file in files} <= set(_names(wheel))


def test_wheel_has_the_library_check(wheel: Path) -> None:
    """`advisor check` finds its program, and all modules of it, where the package was installed."""
    folder = ROOT / "profiling/workloads"
    files = {f"advisor_profiling/workloads/{file.name}" for file in folder.glob("library_*.py")}
    assert "advisor_profiling/workloads/library_check.py" in files
    assert files <= set(_names(wheel))


def test_wheel_has_the_load_of_the_sensor(wheel: Path) -> None:
    """`advisor power sensor` finds its load where the package was installed."""
    assert "advisor_profiling/workloads/power_load.py" in _names(wheel)


def test_wheel_has_the_workload_of_power_kernel(wheel: Path) -> None:
    """`advisor power kernel` finds its program where the package was installed."""
    names = {"kernel_power.py", "kernel_operations.py", "collectives.py"}
    assert {f"advisor_profiling/workloads/{name}" for name in names} <= set(_names(wheel))


def test_wheel_has_the_workload_of_power_input(wheel: Path) -> None:
    """`advisor power input` finds its program where the package was installed."""
    names = {"input_power.py", "input_outputs.py"}
    assert {f"advisor_profiling/workloads/{name}" for name in names} <= set(_names(wheel))


def test_wheel_has_the_model(wheel: Path) -> None:
    """Recommendations work where the package was installed; the model brings its card."""
    files = {"manifest.json", "speed.trees", "power.trees", "README.md"}
    assert {f"advisor_models/bundled/{name}" for name in files} <= set(_names(wheel))


def test_wheel_runs_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Every package and the command import from the wheel alone."""
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
