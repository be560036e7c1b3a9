"""docs/measurements/power/memory_jobs.py: what it measures, and that it goes on, on a fake host."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from host import FAKES, FakeHost

from advisor.core.records import SoloPoint
from advisor_data.files.files import read_points

POWER = Path(__file__).parents[2] / "docs/measurements/power"


@pytest.fixture(scope="module")
def script() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(POWER), *sys.path])
        return importlib.import_module("memory_jobs")


def test_every_kind_of_work_once_and_a_third_again(script: Any) -> None:
    """Copies at the five shares that C1 takes; each job that is named is there."""
    names = [target.jobs[0] for target in script.targets("python3", None)]
    assert names.count("component-hbm-copy") == 5
    assert names.count("triad") == 1
    assert not set(script.ALIKE) & set(names)
    assert set(script.COPIES_AT) < set(names)
    everything = {target.jobs[0] for target in script.targets("python3", ["triad"])}
    assert everything == {"triad"}
    once = list(script.targets("python3", None))[:7]
    assert [t.repeat for t in script.with_repeats(once)] == [0] * 7 + [1] * 3


def test_same_command_goes_on(host: FakeHost, tmp_path: Path) -> None:
    """Time is over in the first window or soon after; nothing is measured twice."""
    python, out = tmp_path / "python", tmp_path / "made-up.jsonl"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {FAKES / 'fake_job.py'}\n")
    python.chmod(0o755)
    code = (
        f"import sys; sys.path.insert(0, {str(POWER)!r}); import memory_jobs\n"
        "memory_jobs.WINDOW_S, memory_jobs.LONGEST_S = 0.5, 0.5\n"
        "memory_jobs.main()"
    )
    words = [sys.executable, "-c", code, str(out), "--python", str(python), "--jobs"]

    def run(minutes: float) -> str:
        done = subprocess.run(
            [*words, "triad", "component-idle", "--minutes", str(minutes)],
            env=host.environment(),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "the same command goes on" in run(0.08)
    before = len(read_points(out))
    assert "goes on" not in run(2)
    points = [p for p in read_points(out) if isinstance(p, SoloPoint)]
    assert len(points) == 4 >= before
    measured = {(p.job, p.share_percent, p.repeat) for p in points}
    once = {("triad", 100.0, 0), ("component-idle", 100.0, 0), ("component-idle", 10.0, 0)}
    assert len(measured) == 4
    assert once < measured
