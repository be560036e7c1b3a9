"""Six servers with cold starts, bursts and backlogs: what is learned of them, beside the truth.

    python docs/measurements/own/servers.py FOLDER --gpu 0    # 4 minutes of a GPU
    python docs/measurements/own/servers.py FOLDER --table

Whenever its gate opens, the requests of 8 s wait for a server; from 20 to 24 s later three times
as many come; at 34 s it answers nothing for 4 s. Three servers run so beside a small training, all
measured alone first, then three others without that. The truth is what a server itself saw of the
requests that came while nothing of that went on. `ADVISOR_HOME` is to be empty at first. FOLDER
gets the job files and servers.jsonl.
"""

import argparse
import atexit
import json
import os
import runpy
import sys
import time
from dataclasses import asdict
from pathlib import Path

GROUPS = (
    ("bert-serve-30", "recommender-serve-10", "whisper-serve-10"),
    ("bert-serve-10", "recommender-serve-30", "whisper-serve-30"),
)
BESIDE, LAUNCH_S = "albert-train-b2", 54
COLD_S, BURST_S, MORE, STALL_S, STALLED_S = 8.0, (20.0, 24.0), 3, 34.0, 4.0
STEADY_S = ((14.0, 20.0), (29.0, 34.0), (46.0, 1e9))
"""Seconds after the gate opened; what came before has been answered by then."""
ROOT = Path(__file__).resolve().parents[3]


def serve(file: Path, script: str, *arguments: str) -> None:
    """A bundled server whose requests come so; it writes what it saw since the last gate."""
    file = file.with_suffix(f".{os.getpid()}")
    sys.path[:0] = [str(Path(script).resolve().parent), str(ROOT)]
    import harness
    import open_loop

    answers = list[tuple[float, float]]()
    begun = 0.0

    class Uneven(open_loop.Arrivals):
        stalls = False

        def __init__(self, rate: float, most: int, seed: object) -> None:
            super().__init__(rate, most + round(60 * rate), seed)

        def start(self, now_s: float) -> None:
            nonlocal begun
            begun, self.stalls = now_s, True
            answers.clear()
            super().start(now_s - COLD_S)

        def waiting(self, now_s: float) -> int:
            if self.stalls and now_s >= begun + STALL_S:
                self.stalls = False
                time.sleep(STALLED_S)
                now_s += STALLED_S
            return super().waiting(now_s)

        def _gap_s(self) -> float:
            bursts = BURST_S[0] <= self.next_s - begun < BURST_S[1]
            return super()._gap_s() / (MORE if bursts else 1)

    class Noting(harness.Progress):
        def answered(self, latencies_s: list[float]) -> None:
            now_s = time.perf_counter()
            answers.extend((now_s - late_s - begun, late_s) for late_s in latencies_s)
            super().answered(latencies_s)

    @atexit.register
    def end() -> None:
        file.write_text(json.dumps(seen(answers, time.perf_counter() - begun)))

    open_loop.Arrivals, harness.Progress = Uneven, Noting
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def seen(answers: list[tuple[float, float]], for_s: float) -> list[dict[str, float]]:
    """Requests per second and p99: of all that were answered in this time, and of steady times."""
    found = list[dict[str, float]]()
    for begin_s, end_s in ((-COLD_S, for_s), *STEADY_S):
        took = sorted(late_s for came_s, late_s in answers if begin_s <= came_s < end_s)
        seconds = min(end_s, for_s) - max(begin_s, 0.0)
        if took and seconds > 3:
            p99_ms = 1000 * took[len(took) * 99 // 100]
            found.append({"begin_s": begin_s, "rate": len(took) / seconds, "p99_ms": p99_ms})
    return found


def measure(folder: Path, gpu: str) -> None:
    """Profile and launch them; a row for each command, with what each server saw."""
    from twelve import advisor

    from advisor.formats.job_file import find_job

    os.environ["ADVISOR_JOBS"] = str(folder.absolute())
    for name in (*sum(GROUPS, ()), BESIDE):
        job = find_job(name, ROOT / "jobs")
        python, *script = job.command
        words = (python, __file__, "--serve", f"{folder.absolute()}/{name}", *script)
        served = {"offered_rate": job.offered_rate} if job.offered_rate else {}
        fields = {"command": words if served else job.command, "workdir": str(job.workdir)}
        fields |= {"progress": asdict(job.progress), "memory_mib": job.memory_mib} | served
        (folder / f"{name}.yaml").write_text(json.dumps(fields))
    ends = "--split", "uncapped", "--duration", str(LAUNCH_S)
    begins = zip(GROUPS, ("--alone", "--no-alone"), strict=True)
    commands = [(("launch", *jobs, BESIDE, *ends, begin), jobs) for jobs, begin in begins]
    for words, jobs in commands:
        done = advisor(*words, "--gpu", gpu)
        files = [file for name in jobs for file in folder.glob(f"{name}.[0-9]*")]
        truth = [(file.stem, json.loads(file.read_text())) for file in files]
        for file in files:
            file.unlink()
        with (folder / "servers.jsonl").open("a") as file:
            file.write(json.dumps({"command": words, "truth": truth} | done) + "\n")


def main() -> None:
    """Measure, or print what came."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    measure(given.folder, given.gpu)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(Path(sys.argv[2]), *sys.argv[3:])
    else:
        main()
