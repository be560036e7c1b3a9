"""Asks for sets first, launches each at the advice, and measures its other ways after.

    python docs/measurements/sets/ask.py FOLDER SETS.txt --run sets-10 --name H200

SETS.txt has a set of three jobs or more on each line, such as `bert-serve-30+notebook+triad`. Jobs
need profiles: what is bundled, and what `ADVISOR_HOME` has (`advisor data import
set_references.jsonl` brings the jobs alone of earlier campaigns). FOLDER gets, in this order, so
that a cut run keeps what it had:

    asked.json        what asked.py reads: every answer, with its time
    launched.jsonl    what was observed of each launch of `--seconds` at the advice
    sets.jsonl        windows of each way: no limits (which is "as many as fit" of a set that fits),
                      the limits that were said, and without MPS
    solo.jsonl        windows of each job alone

About a minute of one GPU for each set.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from advisor.formats.moments import now

MOST_TIME_SLICED = 4
"""Jobs of a set that is also measured without MPS: contexts without it take ten seconds each."""


def main() -> None:
    """Ask, launch, measure."""
    options = _options()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    texts = options.sets.read_text().split()
    asked = [answer(text, options.gpu_model) for text in texts]
    found = {"name": options.name, "run": options.run, "asked": asked}
    (folder / "asked.json").write_text(json.dumps(found) + "\n")
    for number, one in enumerate(asked, 1):
        print(f"{number}/{len(asked)} {one['set']}: {one['choice'] or one['verdict']}", flush=True)
        if one["verdict"] == "share" and options.seconds:
            launch(one["set"], options.seconds, folder, options.gpu)
    plan = folder / "plan.yaml"
    plan.write_text(json.dumps({"name": options.run, "measure": list(windows(asked))}))
    advisor("colocate", str(plan), "--window", "4", "--gpu", options.gpu)
    export(folder / "solo.jsonl", "solo")
    export(folder / "sets.jsonl", "pairs")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Ask for sets, launch them, measure them.")
    parser.add_argument("folder", type=Path, help="where answers and windows go")
    parser.add_argument("sets", type=Path, help="a set on each line")
    parser.add_argument("--run", required=True, help="name of the run of the windows")
    parser.add_argument("--name", required=True, help="of the card, in tables: H100, H200")
    parser.add_argument("--gpu-model", help="as answers name it; that of the profiles if one")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each launch; 0: none")
    parser.add_argument("--gpu", default="0", help="index or UUID")
    return parser.parse_args()


def advisor(*words: str) -> str:
    """What the command printed; its errors are on the terminal."""
    command = [sys.executable, "-m", "advisor_cli", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout


def answer(text: str, gpu_model: str | None) -> dict[str, Any]:
    """What is said of a set; `choice` is null where a card each, or nothing, was said."""
    at, model = now(), ["--gpu-model", gpu_model] if gpu_model else []
    said: dict[str, Any] = json.loads(advisor("recommend", *text.split("+"), "--json", *model))
    one: dict[str, Any] = {"asked_at": str(at), "set": text, "verdict": "apart", "choice": None}
    if "error" in said:
        return {**one, "ways": [], "error": said["error"]["message"]}
    ways = [way_of(way) for way in said["ways"]]
    return {**one, "verdict": said["verdict"], "choice": said["choice"], "ways": ways}


def way_of(way: Mapping[str, Any]) -> dict[str, Any]:
    """Of an answer what asked.py compares."""
    jobs = ("job", "share_percent", "speed", "latency_p99_ms")
    kept = {key: way[key] for key in ("name", "sharing", "power_w", "energy_saved")}
    return {**kept, "jobs": [{key: job[key] for key in jobs} for job in way["jobs"]]}


def launch(text: str, seconds: float, folder: Path, gpu: str) -> None:
    """At the advice for so long; the last status goes to a file of its own."""
    words = ("launch", *text.split("+"), "--duration", f"{seconds:g}", "--gpu", gpu, "--json")
    lines = advisor(*words).splitlines()
    with (folder / "launches.jsonl").open("a") as file:
        file.write((lines[-1] if lines else "null") + "\n")
    export(folder / "launched.jsonl", "observations")


def windows(asked: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Entries of the plan: each way that was said, but of a card each."""
    texts = [one["set"] for one in asked]
    yield {"sets": texts, "splits": ["uncapped"]}
    limited = [text for one in asked for way in one["ways"] if (text := limits_text(way))]
    if limited:
        yield {"sets": limited, "splits": ["uncapped"]}
    few = [text for text in texts if text.count("+") < MOST_TIME_SLICED]
    if few:
        yield {"sets": few, "splits": ["time-sliced"]}


def limits_text(way: Mapping[str, Any]) -> str | None:
    """The set with its limits, as plans have it."""
    if way["sharing"] != "limited":
        return None
    shares = [(job["job"], job["share_percent"]) for job in way["jobs"]]
    return "+".join(job if share >= 100 else f"{job}@{share:g}" for job, share in shares)


def export(file: Path, kind: str) -> None:
    """All that this home has of a kind."""
    advisor("data", "export", str(file), "--kind", kind)


if __name__ == "__main__":
    main()
