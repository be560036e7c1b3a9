"""Five jobs that NVML alone watches, then launched together as an audit of that advises.

    python docs/measurements/audit/five_jobs.py FOLDER --gpus 0,1,2,3    # about 5 minutes
    python docs/measurements/audit/five_jobs_said.py FOLDER              # once more what was found

Each job runs alone on a GPU, as its file says and without advisor; the first on as many GPUs as
there are, the others where those have been. Meanwhile `advisor audit --nvml` watches the host. Its
first sets that have no job in common are launched on the first GPU, at its limits; where no jobs
ran at once it has none, and `advisor launch` chooses for those that it does not say fill a card.

The jobs have other names than those that come with advisor, and a home of their own, so nothing is
known of them but one window: what NVML read while each was alone, with the count of its progress
file for the rate. The forecast of a launch is from that. The heads that estimate were learned from
profiles that come with advisor, two or three of these jobs among them; of notebook-busy and
recommender-serve-10 they have seen nothing.

FOLDER gets `five_jobs.json`, after each step, and the audit.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from five_jobs_said import Found, lines

sys.path.append(str(Path(__file__).resolve().parents[1]))
from worked_jobs import write_job

from advisor.core.gpu import CARD_UNITS, WHOLE, Gpu
from advisor.core.job import Job
from advisor.core.records import SoloPoint
from advisor.formats.job_file import find_job
from advisor.formats.moments import to_text
from advisor.progress import FILE_BYTES
from advisor.runtime.jobs.counting import CounterFile
from advisor.settings import Settings, read_settings
from advisor_audit.sources.series import METRICS
from advisor_data.files.files import write_points
from advisor_profiling.telemetry.nvml import NvmlSource
from advisor_profiling.testbed.live import find_gpu
from advisor_profiling.window.clock import Clock
from advisor_profiling.window.window import WindowRules, measure_idle

FIVE = "whisper-infer-b2,mobilenet-train-b2,notebook-busy,recommender-serve-10,bert-serve-30"
"""None of them fills an H100 alone."""

START_S, AUDIT_STARTS_S, LOOK_S, STEP_S, IDLE_S = 180.0, 8.0, 0.2, 2.0, 3.0


@dataclass(slots=True, eq=False)
class Alone:
    """A job that runs alone on a GPU.

    Attributes:
        seen_as: Its name in the audit: NVML knows none.
        window: Two moments with the count at each.
    """

    job: Job
    gpu: Gpu
    seen_as: str
    process: "subprocess.Popen[bytes]"
    counter: CounterFile
    window: list[tuple[float, float]]

    def mark(self) -> None:
        """The window begins, or ends, now."""
        self.window = [*self.window[:1], (time.time(), self.counter.read())]

    def stop(self) -> None:
        """It and all that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def main() -> None:
    """Watch, ask, launch, and print what was predicted and observed."""
    parser = argparse.ArgumentParser(description="Five jobs seen by NVML alone, then launched.")
    parser.add_argument("folder", type=Path, help="where everything goes")
    parser.add_argument("--gpus", default="0", help="indices or UUIDs, with commas")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each watch and launch")
    parser.add_argument("--jobs", default=FIVE, help="job files, with commas")
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    _measure(folder, folder / "five_jobs.json", options)
    print(*lines(folder / "five_jobs.json"), sep="\n")


def _measure(folder: Path, file: Path, options: argparse.Namespace) -> None:
    own = read_settings()
    shutil.rmtree(folder / "home", ignore_errors=True)  # what was observed before is no window
    os.environ |= {"ADVISOR_HOME": str(folder / "home"), "ADVISOR_JOBS": str(folder / "jobs")}
    settings = read_settings()
    (folder / "jobs").mkdir(exist_ok=True)
    known = [find_job(name, own.jobs_dir) for name in options.jobs.split(",")]
    # Under names of which nothing is known.
    jobs = [replace(job, name=f"five-{job.name}") for job in known]
    for job in jobs:
        write_job(folder / "jobs", job, offered_rate=job.offered_rate)
    gpus = [find_gpu(name) for name in options.gpus.split(",")]
    idle_w = {gpu.uuid: _idle_w(gpu) for gpu in gpus}
    found: Found = {"at": _moment(time.time()), "gpu_model": gpus[0].model, "idle_w": idle_w}
    found |= {"seconds": options.seconds, "commands": {job.name: job.command for job in jobs}}

    def save(**more: object) -> None:
        found.update(more)
        file.write_text(json.dumps(found, indent=1) + "\n")

    save(points=[])
    seen = _watched(jobs, gpus, options.seconds, folder, settings)
    points = [_point(one, _means(folder / "series.jsonl", one), idle_w) for one in seen]
    save(points=[asdict(point) for point in points])
    write_points(folder / "points.jsonl", points)
    names = {one.seen_as: one.job.name for one in seen}
    save(audit=_of_audit(json.loads((folder / "audit.json").read_text()), names), launches=[])
    for advised in _advised(found["audit"]):
        launched = _launched(advised, gpus[0], options.seconds, folder)
        save(launches=[*found["launches"], {"advised": advised, **launched}])


def _idle_w(gpu: Gpu) -> float | None:
    """Mean over some seconds in which nothing runs."""
    with closing(NvmlSource(gpu.uuid)) as source:
        return measure_idle(source, Clock(), WindowRules(idle_s=IDLE_S))


def _watched(
    jobs: Sequence[Job], gpus: Sequence[Gpu], seconds: float, folder: Path, settings: Settings
) -> list[Alone]:
    """Every job alone on a GPU for so long, with an audit beside them."""
    waves = [jobs[n : n + len(gpus)] for n in range(0, len(jobs), len(gpus))]
    minutes = len(waves) * (seconds + START_S) / 60
    seen, last, audit = list[Alone](), dict[str, Alone](), None
    try:
        for number, wave in enumerate(waves, start=1):
            for job, gpu in zip(wave, gpus, strict=False):
                if gpu.uuid in last:
                    last[gpu.uuid].mark()
                    last[gpu.uuid].stop()
                last[gpu.uuid] = _started(job, gpu, number, folder, settings)
                seen.append(last[gpu.uuid])
            for one in (begun := seen[-len(wave) :]):
                _await(one)
                _say(f"{one.job.name} is at work on GPU {one.gpu.index}")
            audit = audit or _audit(minutes, folder)
            for one in begun:
                one.mark()
            time.sleep(seconds)
        for one in last.values():
            one.mark()
        assert audit is not None
        audit.send_signal(signal.SIGINT)  # what was seen until now is audited
        _say("the audit reckons")
        if audit.wait():
            sys.exit((folder / "audit.err").read_text())
    finally:
        if audit is not None:
            audit.kill()
        for one in seen:
            one.stop()
    return seen


def _audit(minutes: float, folder: Path) -> "subprocess.Popen[bytes]":
    """As a user starts it; it has begun to read when this returns."""
    said = f"--minutes={minutes:.2f}", f"--step={STEP_S:g}", f"--keep={folder / 'series.jsonl'}"
    command = [sys.executable, "-m", "advisor_cli", "audit", "--nvml", *said]
    (folder / "series.jsonl").unlink(missing_ok=True)
    with (folder / "audit.err").open("wb") as errors:
        audit = subprocess.Popen(
            [*command, f"--out={folder / 'audit.html'}"], stdout=errors, stderr=errors
        )
    _say("the audit watches")
    time.sleep(AUDIT_STARTS_S)
    return audit


def _started(job: Job, gpu: Gpu, number: int, folder: Path, settings: Settings) -> Alone:
    progress = folder / f"{job.name}.progress"
    progress.write_bytes(bytes(FILE_BYTES))
    told = {"CUDA_VISIBLE_DEVICES": gpu.uuid, "ADVISOR_PROGRESS_FILE": str(progress)}
    with (folder / f"{job.name}.log").open("wb") as log:
        env = {**settings.job_environment(), **told, **dict(job.env)}
        process = subprocess.Popen(
            job.command, cwd=job.workdir, env=env, stdout=log, stderr=log, start_new_session=True
        )
    return Alone(job, gpu, f"{gpu.uuid} #{number}", process, CounterFile(progress), [])


def _await(one: Alone) -> None:
    """Until it has made progress."""
    until_s = time.monotonic() + START_S
    while not one.counter.read():
        if one.process.poll() is not None or time.monotonic() > until_s:
            sys.exit(f"{one.job.name} does not work: see its log in the folder")
        time.sleep(LOOK_S)


def _means(series: Path, one: Alone) -> Mapping[str, float]:
    """Of each channel that was read of its GPU in its window."""
    scales = {name: (ch, scale) for ch, of in METRICS.items() for name, scale in of.items()}
    (begin_s, _), (end_s, _) = one.window
    values: dict[str, list[float]] = defaultdict(list)
    for line in series.read_text().splitlines():
        read = json.loads(line)
        if read["metric"]["UUID"] == one.gpu.uuid:
            channel, scale = scales[read["metric"]["__name__"]]
            values[channel] += [scale * float(v) for t, v in read["values"] if begin_s <= t < end_s]
    return {channel: sum(of) / len(of) for channel, of in values.items() if of}


def _point(one: Alone, means: Mapping[str, float], idle_w: Mapping[str, float | None]) -> SoloPoint:
    (begin_s, first), (end_s, last) = one.window
    read: Found = {n: v for n, v in means.items() if n in SoloPoint.__dataclass_fields__}
    return SoloPoint(
        **read,
        job=one.job.name,
        gpu_model=one.gpu.model,
        gpu_uuid=one.gpu.uuid,
        units_total=CARD_UNITS.get(one.gpu.model),
        idle_power_w=idle_w[one.gpu.uuid],
        mode="uncapped",
        share_percent=WHOLE,
        rate=(last - first) / (end_s - begin_s),
        rate_unit=one.job.progress.unit,
        offered_rate=one.job.offered_rate,
        window_s=end_s - begin_s,
        started_at=_moment(begin_s),
        run="five-jobs",
        source="nvml",
    )


def _of_audit(audit: Found, names: Mapping[str, str]) -> Found:
    """What it says, with the names of the jobs in place of those of GPUs."""
    ours = (one for one in audit["sets"] if names.keys() >= {*one["jobs"]})
    sets = [one | {"jobs": [names[job] for job in one["jobs"]]} for one in ours]
    jobs = [one | {"job": names[one["job"]]} for one in audit["jobs"] if one["job"] in names]
    return {**{key: audit[key] for key in ("span", "now", "shared")}, "sets": sets, "jobs": jobs}


def _advised(audit: Found) -> list[Found]:
    """Sets with no job in common; where there are none, all that are not said to fill a card."""
    found, taken = list[Found](), set[str]()
    for one in sorted(audit["sets"], key=lambda one: -one["saved_w"] * one["hours"]):
        if taken.isdisjoint(one["jobs"]):
            found.append(one)
            taken.update(one["jobs"])
    small = [job["job"] for job in audit["jobs"] if job["fills"] is not True]
    return found or [{"jobs": small}] * (len(small) > 1)


def _launched(advised: Found, gpu: Gpu, seconds: float, folder: Path) -> Found:
    """At the limits of the audit; where there are none, or they are refused, as is recommended."""
    shares = advised.get("limits_percent", ())
    split = "uncapped" if shares else None
    if min(shares, default=WHOLE) < WHOLE:
        split = "/".join(f"{share:g}" for share in shares)
    command = [sys.executable, "-m", "advisor_cli", "launch", *advised["jobs"], "--json"]
    command += [f"--profiles={folder / 'points.jsonl'}", f"--gpu={gpu.uuid}"]
    command += [f"--duration={seconds:g}"]
    tried: Found = {}
    for way in dict.fromkeys((split, None)):
        _say(f"launching {' + '.join(advised['jobs'])}, {way or 'as recommended'}")
        asked = [] if way is None else [f"--split={way}"]
        done = subprocess.run([*command, *asked], capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        last: Found = json.loads(lines[-1]) if lines else {}
        tried = {**tried, "exit_code": done.returncode, "split": way, "launch": last}
        if last.get("observations"):
            break
        tried["refused"] = done.stderr[-500:] or last.get("cause") or last
    return tried


def _moment(at_s: float) -> str:
    return to_text(datetime.fromtimestamp(at_s, UTC))


def _say(text: str) -> None:
    print(f"{_moment(time.time())} {text}", flush=True)


if __name__ == "__main__":
    main()
