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
    assert api.post("/v1/recommendations", {{"jobs": jobs, "gpu_model": {GPU_MODEL!r}}})["verdict"]
    assert api.post("/v1/placements", {{"jobs": jobs, "gpus": 1}})["sets"]
    assert api.get("/v1/profiles/triad")
    tell()
    # It does load the wing then: the check above can fail.
    assert api.get("/v1/profiles/triad/components")["shares"]
tell()
"""

LAUNCHES = f"""
import sys
from advisor_cli.app import main
words = ["launch", *{PAIR!r}, "--dry-run", "--gpu-model", {GPU_MODEL!r}]
for how in (["--split", "50/50"], ["--min-speed", "0"]):
    sys.argv = ["advisor", *words, *how]
    try:
        main()
    except SystemExit as stopped:
        assert not stopped.code, stopped.code
    tell()
"""

TELL = """
import sys
def tell():
    of_power = [name for name in sys.modules if name.split(".")[0] == "advisor_power"]
    print("loaded:", *sorted(of_power))
"""


def loaded(folder: Path, code: str) -> list[list[str]]:
    """What a process of its own has loaded of the power wing whenever it tells."""
    (folder / "jobs").mkdir()
    for name in PAIR:
        text = '{command: "true", progress: {kind: counter, unit: steps}}'
        (folder / "jobs" / f"{name}.yaml").write_text(text)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "ADVISOR_"))}
    home = {"ADVISOR_HOME": str(folder / "home"), "ADVISOR_JOBS": str(folder / "jobs")}
    done = subprocess.run(
        [sys.executable, "-c", TELL + code],
        cwd=folder,
        env={**kept, **home, "PYTHONPATH": str(FAKES)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("loaded:")]
    return [line.split()[1:] for line in told]


@pytest.mark.slow
def test_a_service(tmp_path: Path) -> None:
    before, after = loaded(tmp_path, SERVES)
    assert before == []
    assert "advisor_power.components" in after


@pytest.mark.slow
def test_a_launch(tmp_path: Path) -> None:
    assert loaded(tmp_path, LAUNCHES) == [[], []]
