"""Folders of launches that ended some days ago, as their supervisors left them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from store_points import observation

from advisor.core.gpu import NINE
from advisor.core.job import Job
from advisor.core.records import Observation
from advisor.formats.moments import to_text
from advisor.formats.rows import to_row
from advisor.launch.folder import OBSERVATIONS, LaunchFolder, StatusWriter, create_folder
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec, State

PAIR = LaunchSet(
    split=NINE[2],
    parts=tuple(LaunchPart(job=Job(name=name, command=(name,))) for name in ("gemm", "sort")),
)


def launch_id(number: int) -> str:
    """Ids that sort by number."""
    return f"20260131-120000-{number:06}"


def ended_launch(
    home: Path,
    number: int,
    days_ago: float,
    *,
    output_bytes: int = 0,
    state: State = "finished",
    name: str | None = None,
) -> LaunchFolder:
    """A launch with one observation, and a job that wrote so much; its id is of 2026-01-31."""
    spec = LaunchSpec(launch_id=name or launch_id(number), gpu="GPU-1", pairs=(PAIR,))
    folder = create_folder(home / "launches", spec)
    with folder.supervising():
        writer = StatusWriter(folder, spec)
        ended_at = to_text(datetime.now(UTC) - timedelta(days=days_ago))
        folder.write_status(replace(writer.status, state=state, ended_at=ended_at))
    job = folder.path / "0-a"
    job.mkdir(mode=0o700)
    (job / "output.log").write_bytes(b"x" * output_bytes)
    (folder.path / OBSERVATIONS).write_text(json.dumps(to_row(seen(number))) + "\n")
    return folder


def seen(number: int) -> Observation:
    """What the jobs of a launch did."""
    return observation(number, launch_id=launch_id(number))
