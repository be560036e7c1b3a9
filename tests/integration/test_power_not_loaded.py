"""Who asks nothing of power by kernels, inputs, sensors or components loads nothing of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAKES = Path(__file__).parents[1] / "fakes"
PAIR = ("bert-infer", "triad")
GPU_MODEL = "NVIDIA H200"

SERVES = f"""
import sys
from pathlib import Path
from in_process import running
jobs = [{{"job": job}} for job in {PAIR!r}]
with running(Path("home")) as api:
    assert api.post("/v1/recommendations", {{"jobs": jobs, "gpu_model": {GPU_MODEL!r}}})["choice"]
    assert api.post("/v1/placements", {{"jobs": jobs, "gpus": 1}})["groups"]
    assert api.get("/v1/profiles/triad")
    if sys.argv[1:]:
        assert api.get("/v1/profiles/triad/components")["shares"]
"""

LAUNCHES = f"""
import sys
from advisor_cli.app import main
words = ["--dry-run", "--gpu-model", {GPU_MODEL!r}, *sys.argv[1:]]
sys.argv = ["advisor", "launch", *{PAIR!r}, *words]
try:
    main()
except SystemExit as stopped:
    assert not stopped.code, stopped.code
"""

TELL = """
import sys
print("loaded:", *sorted(name for name in sys.modules if name.split(".")[0] == "advisor_power"))
"""


def loaded(folder: Path, code: str, *words: str) -> list[str]:
    """What a process of its own has loaded of the power wing when it is done."""
    (folder / "jobs").mkdir()
    for name in PAIR:
        text = '{command: "true", progress: {kind: counter, unit: steps}}'
        (folder / "jobs" / f"{name}.yaml").write_text(text)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "ADVISOR_"))}
    home = {"ADVISOR_HOME": str(folder / "home"), "ADVISOR_JOBS": str(folder / "jobs")}
    done = subprocess.run(
        [sys.executable, "-c", code + TELL, *words],
        cwd=folder,
        env={**kept, **home, "PYTHONPATH": str(FAKES)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("loaded:")]
    return line.split()[1:]


def test_a_service_that_answers(tmp_path: Path) -> None:
    """Recommendations, placements and profiles."""
    assert loaded(tmp_path, SERVES) == []


def test_a_service_that_is_asked_where_power_goes(tmp_path: Path) -> None:
    """It does load the wing: the check above can fail."""
    assert "advisor_power.components.known" in loaded(tmp_path, SERVES, "components")


@pytest.mark.parametrize("split", [("--split", "50/50"), ("--min-speed", "0")])
def test_a_launch(split: tuple[str, ...], tmp_path: Path) -> None:
    """At a split that is given, with its forecast, and at the recommended one."""
    assert loaded(tmp_path, LAUNCHES, *split) == []
