"""Job files of a folder, whose jobs have a fixed amount of work."""

import json
from dataclasses import asdict, replace
from pathlib import Path

from advisor.core.job import Job

_FIXED_WORK = Path(__file__).resolve().with_name("fixed_work.py")


def with_work(job: Job, steps: float) -> Job:
    """The job, which ends after so many steps."""
    python, *script = job.command
    return replace(job, command=(python, str(_FIXED_WORK), str(max(1, round(steps))), *script))


def write_job(folder: Path, job: Job, **more: object) -> None:
    """The file of a job; `more` are further fields."""
    fields: dict[str, object] = {
        "command": job.command,
        "workdir": str(job.workdir or Path.cwd()),
        "progress": asdict(job.progress),
        "memory_mib": job.memory_mib,
    }
    (folder / f"{job.name}.yaml").write_text(json.dumps(fields | more))
