"""What `advisor watch` says of a look, and what it keeps."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from advised import settings_of, solo_points

from advisor.core.job import Job, ProgressSettings
from advisor.core.records import UNCOUNTED_UNIT, WATCHED
from advisor.formats.job_file import load_job
from advisor_advice.conditions import find_profiles
from advisor_cli.measure import watch
from advisor_cli.measure.watch import _keep, _rate_text  # pyright: ignore[reportPrivateUsage]
from advisor_profiling.attached import WatchedGpu, WatchedNow


def gpu(*others: int) -> WatchedGpu:
    return WatchedGpu(
        index=0,
        model="NVIDIA H100 80GB HBM3",
        power_w=300.0,
        power_limit_w=700.0,
        sm_active_percent=50.0,
        memory_mib=1.0,
        others=others,
        impossible=0,
    )


def look(*gpus: WatchedGpu) -> str:
    return _rate_text(
        WatchedNow(
            pid=1,
            job="train",
            at="",
            watched_s=1.0,
            alone_s=0.0,
            count=1.0,
            unit="steps",
            rate=10.0,
            fault=None,
            gpus=gpus,
        )
    )


def test_joules_are_told_only_of_all_gpus_of_a_job() -> None:
    assert "60 J each" in look(gpu(), gpu())
    assert "J each" not in look(gpu(), gpu(77))


def test_what_is_seen_is_stored_and_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one's own processes that are counted; of others there is advice, and nothing to launch."""
    settings = replace(settings_of(tmp_path), database_url=f"sqlite:///{tmp_path / 'points.db'}")
    monkeypatch.setattr(watch, "read_settings", lambda: settings)
    monkeypatch.setattr(watch, "owner_of", {1: os.geteuid() + 1, os.getpid(): os.geteuid()}.get)
    progress = ProgressSettings(kind="output", pattern="step (.*)")
    whole = max(solo_points("a"), key=lambda point: point.share_percent)
    for name, pid, unit in (
        ("own", os.getpid(), "steps"), ("other", 1, "steps"), ("none", os.getpid(), UNCOUNTED_UNIT)
    ):  # fmt: skip
        job = Job(name=name, command=("train",), workdir=tmp_path, progress=progress)
        seen = replace(whole, job=name, run=name, gpu_busy_percent=40.0)
        point = replace(seen, flags=(WATCHED,), rate_unit=unit)
        for window_s in (60.0, 120.0):
            _keep(pid, job, replace(point, window_s=window_s))
    assert load_job(settings.jobs_dir / "own.yaml").progress == progress
    assert [file.stem for file in settings.jobs_dir.glob("*.yaml")] == ["own"]
    found = find_profiles(["own", "other", "none"], settings).profiles
    assert [len(profile.shares) for profile in found] == [10, 10, 10]
