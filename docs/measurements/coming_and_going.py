"""A set that runs on while jobs leave and join, until one job and then the supervisor are killed.

A server that has promised a p99 and three batch jobs are launched at the advice; the jobs have
work for 15, 30 and 45 % of the time and leave, three others join at 20, 35 and 50 %. At 75 % one of
those is killed (SIGKILL), at the end the supervisor. Printed: when each came and left, every
stretch that was kept (the jobs that ran together, seconds, joules, p99), and what is left on the
host afterwards.

    .venv/bin/python docs/measurements/coming_and_going.py FOLDER         # 11 minutes of one GPU
    .venv/bin/python docs/measurements/coming_and_going.py FOLDER --print # what was found
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from worked_jobs import with_work, write_job

from advisor.core.job import Job
from advisor.formats.job_file import find_job
from advisor.settings import Settings, read_settings
from advisor_advice.profiles import all_profiles
from advisor_profiling.testbed.live import find_gpu

STAYS, PROMISED_MS = "bert-serve-30", 50.0
"""A server, and the p99 that it has promised."""

LEAVE = {"mobilenet-train-b2": 0.15, "resnet50-train-b2": 0.3, "bert-train-b2": 0.45}
JOIN = {"whisper-infer-b2": 0.2, "vit-infer-b2": 0.35, "notebook": 0.5}
"""When each does, as a part of the whole time."""

KILLED, KILLED_AT = "vit-infer-b2", 0.75

AFTER_S = 20.0
"""Within which all that a killed supervisor has left must be gone."""


def main() -> None:
    """Launch, let jobs join, kill, and print what was kept."""
    options = _options()
    file: Path = options.folder / "coming_and_going.json"
    if not options.print:
        found = _run(options.folder / "jobs", options.seconds, options.gpu, read_settings())
        file.write_text(json.dumps(found, indent=1) + "\n")
    for line in _lines(json.loads(file.read_text())):
        print(line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Jobs leave and join a set that runs.")
    parser.add_argument("folder", type=Path, help="where job files and what was found go")
    parser.add_argument("--gpu", default="0", help="index or UUID")
    parser.add_argument("--seconds", type=float, default=600.0, help="of the whole")
    parser.add_argument("--print", action="store_true", help="measure nothing: print the figures")
    return parser.parse_args()


def _run(folder: Path, seconds: float, gpu_text: str, settings: Settings) -> dict[str, Any]:
    """What happened when, and what was there at the end."""
    gpu = find_gpu(gpu_text)
    jobs = _jobs(folder, gpu.model, seconds, settings)
    env = {**settings.environment, "ADVISOR_JOBS": str(folder.absolute())}
    started = _advisor(env, "launch", *(STAYS, *LEAVE), "--gpu", gpu.uuid, "--detach")
    if "launch_id" not in started or started["state"] == "failed":
        sys.exit(f"nothing was launched: {started}")
    launch_id, begun_s = started["launch_id"], time.monotonic()
    events: list[dict[str, Any]] = []
    todo: list[tuple[float, str]] = [(part * seconds, name) for name, part in JOIN.items()]
    for at_s, name in sorted([*todo, (KILLED_AT * seconds, "")]):
        time.sleep(max(0.0, begun_s + at_s - time.monotonic()))
        if name:
            said = _advisor(env, "launch", "--join", launch_id, name)
            events.append({"at_s": time.monotonic() - begun_s, "joined": name, "said": said})
        else:
            pids = list(_pids(jobs[KILLED]))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            events.append({"at_s": time.monotonic() - begun_s, "killed": KILLED, "pids": pids})
        print(events[-1], flush=True)
    time.sleep(max(0.0, begun_s + seconds - time.monotonic()))
    before = _advisor(env, "launches", "show", launch_id)
    with contextlib.suppress(ProcessLookupError):
        os.kill(before["supervisor_pid"], signal.SIGKILL)
    events.append({"at_s": time.monotonic() - begun_s, "killed": "supervisor"})
    gone_s = _gone_s(jobs, gpu.uuid)
    after = _advisor(env, "launches", "show", launch_id)
    return {
        "gpu_model": gpu.model,
        "events": events,
        "before": before,
        "after": after,
        "gone_s": gone_s,
    }


def _jobs(folder: Path, model: str, seconds: float, settings: Settings) -> dict[str, Job]:
    """All seven; those that leave get as much work as they do alone in their time."""
    profiles = all_profiles(settings, model)
    folder.mkdir(parents=True, exist_ok=True)
    jobs: dict[str, Job] = {}
    for name in (STAYS, *LEAVE, *JOIN):
        job = find_job(name, settings.jobs_dir)
        if name in LEAVE:
            job = with_work(job, profiles[name].whole_gpu_rate * seconds * LEAVE[name])
        promise = {"offered_rate": job.offered_rate, "max_p99_ms": PROMISED_MS}
        write_job(folder, job, **(promise if name == STAYS else {}))
        jobs[name] = job
    return jobs


def _advisor(env: Mapping[str, str], *words: str) -> dict[str, Any]:
    """The last JSON that the command prints."""
    command = [sys.executable, "-m", "advisor_cli", *words, "--json"]
    text = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False).stdout
    answer: dict[str, Any] = json.loads(text.splitlines()[-1])
    return answer


def _pids(job: Job) -> Iterator[int]:
    """Processes that run the command of a job."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if tuple(words[1:-1]) == tuple(job.command[1:]):
            yield int(folder.name)


def _gone_s(jobs: Mapping[str, Job], uuid: str) -> float | None:
    """Seconds until no process of the launch and nobody on the GPU is left; None: some are."""
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < AFTER_S:
        left = [pid for job in jobs.values() for pid in _pids(job)]
        if not left and not _computing(uuid):
            return passed_s
        time.sleep(0.5)
    return None


def _computing(uuid: str) -> list[str]:
    query = ["nvidia-smi", "-i", uuid, "--query-compute-apps=pid,name", "--format=csv,noheader"]
    return subprocess.check_output(query, text=True).split("\n")[:-1]


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"a set on {found['gpu_model']}"
    for event in found["events"]:
        said = event.get("said") or {}
        who = event.get("joined") or event["killed"]
        what = "joined" if "joined" in event else "killed"
        share = f" at {said['share_percent']:g} %" if said.get("share_percent") else ""
        yield f"{event['at_s']:6.1f} s: {who} {what}{share} {said.get('code') or ''}".rstrip()
    for job in found["before"]["jobs"]:
        yield f"  {job['job']}: {job['outcome']}, {job['joined_at'] or ''} {job['ended_at'] or ''}"
    stretches = found["after"].get("observations", ())
    for seen in sorted(stretches, key=lambda seen: seen["stretch"]):
        who = "+".join(job["job"] for job in seen["jobs"])
        p99_ms = max(job["latency_p99_ms"] or 0.0 for job in seen["jobs"])
        took = f"{seen['overlap_s']:.1f} s, {seen['energy_j']:.0f} J, p99 {p99_ms:.1f} ms"
        yield f"stretch {seen['stretch']}: {took}, {who} {seen['flags'] or ''}".rstrip()
    code, gone_s = found["after"]["code"], found["gone_s"]
    yield f"after the supervisor was killed: {code}, all gone in {gone_s} s"


if __name__ == "__main__":
    os.umask(0o077)
    main()
