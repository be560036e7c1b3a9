"""The file for Prometheus's textfile collector."""

import shutil
import subprocess
from pathlib import Path

import pytest

from advisor_cli.learn.retrain import metrics_text, write_metrics
from advisor_training.pairs import LeftOut
from advisor_training.retrain.challenger import ComparedFigure
from advisor_training.retrain.points import REASONS, RefusedPoints
from advisor_training.retrain.retrain import RetrainReport

REPORT = RetrainReport(
    at="2026-02-01T03:00:00+00:00",
    outcome="promoted",
    why="better",
    champion="20260201-abc",
    challenger="20260201-abc",
    new_points=12,
    left_out=(RefusedPoints("flagged", 2, "far off", ("x", "y")),),
    launches_left_out=(LeftOut("launches that failed", 3),),
    compared=(
        ComparedFigure(
            group='GPU model "X\\Y"', figure="error", tests=3, jobs=5, champion_percent=7.5,
            challenger_percent=6.0, gain_percent=1.5, low_percent=1.0, high_percent=2.0,
            decides=True,
        ),
    ),
)  # fmt: skip


def test_metrics() -> None:
    """Every reason and outcome has a sample, so that a first one is a rise."""
    lines = metrics_text(REPORT).splitlines()
    assert "advisor_retrain_last_success_timestamp_seconds 1769914800.0" in lines
    assert 'advisor_retrain_outcome{outcome="promoted"} 1.0' in lines
    assert 'advisor_retrain_outcome{outcome="kept"} 0.0' in lines
    assert 'advisor_retrain_champion_info{version="20260201-abc"} 1.0' in lines
    assert 'advisor_retrain_left_out_points{reason="flagged"} 2.0' in lines
    assert sum(line.startswith("advisor_retrain_left_out_points{") for line in lines) == len(
        REASONS
    )
    assert 'advisor_retrain_left_out_launches{reason="launches that failed"} 3' in lines
    group = r'group="GPU model \"X\\Y\""'
    assert f'advisor_retrain_error_percent{{{group},model="challenger"}} 6.0' in lines


def test_promtool_is_content() -> None:
    """Names, types and escapes are what Prometheus takes."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian package prometheus)")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=metrics_text(REPORT), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert done.stdout == ""


def test_the_file_is_replaced_at_once(tmp_path: Path) -> None:
    """Readable for the collector, and nothing is left next to it."""
    path = tmp_path / "advisor.prom"
    path.write_text("old")
    write_metrics(path, REPORT)
    assert path.read_text() == metrics_text(REPORT)
    assert path.stat().st_mode & 0o044
    assert list(tmp_path.iterdir()) == [path]
