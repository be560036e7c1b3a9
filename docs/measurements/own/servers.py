"""Six servers with cold starts, bursts and backlogs: what is learned of them, beside the truth.

    python docs/measurements/own/servers.py FOLDER            # 4 minutes of GPU 0
    python docs/measurements/own/servers.py FOLDER --table

Whenever its gate opens, the requests of 8 s wait for a server; from 20 to 24 s later three times
as many come; at 34 s it answers nothing for 4 s. Three servers run so beside a small training, all
measured alone first, then three others without that. The truth is what a server itself saw of the
requests that came from 46 s on. `ADVISOR_HOME` is to be empty at first. FOLDER gets the job files
and servers.jsonl.
"""

import atexit
import json
import math
import os
import runpy
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

GROUPS = (
    ("bert-serve-30", "recommender-serve-10", "whisper-serve-10"),
    ("bert-serve-10", "recommender-serve-30", "whisper-serve-30"),
)
BESIDE, LAUNCH_S = "albert-train-b2", 54
COLD_S, BURST_S, STALL_S, STALLED_S, STEADY_S = 8.0, (20.0, 24.0), 34.0, 4.0, 46.0
ROOT = Path(__file__).resolve().parents[3]


def serve(file: Path, script: str, *arguments: str) -> None:
    """A bundled server whose requests come so; it writes what it saw since the last gate."""
    sys.path[:0] = [str(Path(script).resolve().parent), str(ROOT)]
    import harness
    import open_loop

    answers, begun = list[tuple[float, float]](), 0.0

    class Uneven(open_loop.Arrivals):
        def start(self, now_s: float) -> None:
            nonlocal begun
            begun, self.stalls, self._waiting = now_s, True, deque()
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
            return super()._gap_s() / (3 if bursts else 1)

    class Noting(harness.Progress):
        def answered(self, latencies_s: list[float]) -> None:
            now_s = time.perf_counter()
            answers.extend((now_s - late_s - begun, late_s) for late_s in latencies_s)
            super().answered(latencies_s)

    @atexit.register
    def end() -> None:
        end_s, found = time.perf_counter() - begun, list[dict[str, float]]()
        for begin_s in (-COLD_S, STEADY_S):
            took = sorted(late_s for came_s, late_s in answers if came_s >= begin_s)
            rate, p99_s = len(took) / (end_s - max(begin_s, 0)), took[len(took) * 99 // 100]
            found.append({"begin_s": begin_s, "rate": rate, "p99_ms": 1000 * p99_s})
        file.with_suffix(f".{os.getpid()}").write_text(json.dumps(found))

    open_loop.Arrivals, harness.Progress, sys.argv = Uneven, Noting, [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def measure(folder: Path) -> None:
    """Launch them; a row for each launch, with what each server saw."""
    from twelve import advisor, write_job

    folder.mkdir(parents=True, exist_ok=True)
    os.environ["ADVISOR_JOBS"] = str(folder.absolute())
    write_job(folder, BESIDE)
    for name in sum(GROUPS, ()):
        write_job(folder, name, __file__, "--serve", f"{folder.absolute()}/{name}")
    for jobs, alone in zip(GROUPS, ("--alone", "--no-alone"), strict=True):
        for_s = ("--duration", str(LAUNCH_S))
        done = advisor("launch", *jobs, BESIDE, "--split", "uncapped", *for_s, alone)
        files = (file for name in jobs for file in folder.glob(f"{name}.[0-9]*"))
        truth = [(file.stem, json.loads(file.read_text())) for file in files]
        with (folder / "servers.jsonl").open("a") as rows:
            rows.write(json.dumps({"truth": truth} | done) + "\n")


def table(file: Path) -> Iterator[str]:
    """Of each server all, the steady seconds and what was learned; then the advice."""
    from twelve import advisor

    for row in (rows := [json.loads(line) for line in file.read_text().splitlines()]):
        (observed,) = row["said"]["observations"]
        learned = {job["job"]: job for job in observed["jobs"]}
        for name, (whole, *_, steady) in row["truth"]:
            job = learned[name]
            taught = {"rate": job["rate"] or math.nan, "p99_ms": job["latency_p99_ms"] or math.nan}
            cells = (f"{x['rate']:,.0f}, {x['p99_ms']:,.1f}" for x in (whole, steady, taught))
            yield f"|{name}|{job['solo_rate']:,g}|{'|'.join(cells)}|".replace("nan, nan", "none")
    with tempfile.TemporaryDirectory() as home:
        os.environ["ADVISOR_HOME"] = home
        seen = Path(home, "seen.jsonl")
        seen.write_text("".join(json.dumps(row["said"]["observations"][0]) + "\n" for row in rows))
        for when in ("before", "after"):
            for group in GROUPS:
                said = advisor("recommend", *group, BESIDE, "--gpu-model", "NVIDIA H200")["said"]
                choice = said["choice"] or {}
                watts = f"at {choice['power_w']['value']:.0f} W" if choice else ""
                yield f"{when}: {said['verdict']} {choice.get('split', '')} {watts}"
            advisor("data", "import", str(seen))


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(Path(sys.argv[2]), *sys.argv[3:])
    elif "--table" in sys.argv:
        print(*table(Path(sys.argv[1], "servers.jsonl")), sep="\n")
    else:
        measure(Path(sys.argv[1]))
