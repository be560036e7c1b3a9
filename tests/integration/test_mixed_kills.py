"""Kills and stops at random, under load: nothing is lost, and nothing passes for what it is not.

    KILLS_S=600 .venv/bin/pytest -s -n 0 -m nightly tests/integration/test_mixed_kills.py

On one GPU sets of three are launched, joined and ended, by HTTP and by commands; on the other one
queue of jobs follows the next. A client posts points and observations. Meanwhile others send
SIGKILL, or SIGSTOP and SIGCONT, to the service, supervisors, guards, shims, jobs and the queue's
command, and all that is shown through every door is held against what the processes are.
"""

import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from host import OTHER_UUID, UUID, FakeHost
from launch_server import LaunchServer, launch_server, make_tokens
from launched import no_leftovers, processes_of
from store_points import observation, pair_point

from advisor.core.records import PAUSED, UNWATCHED, Observation
from advisor.formats.rows import from_row, json_row, to_row
from advisor.formats.wire import to_plain
from advisor.launch import guard
from advisor.launch.folder import joins, list_folders, observation_lines
from advisor.launch.guard import LAUNCH_MARK
from advisor.launch.spec import GOING, OVER, SILENT_S
from advisor.runtime.processes import environment_of, is_stopped, wait_until
from advisor_data import open_store
from advisor_profiling import SUPERVISOR

SECONDS = float(os.environ.get("KILLS_S", "60"))
# What a busy host and the time between two looks add to each bound; within which nobody lives of a
# launch that is over (shims end their jobs 3 s after those that watch are gone, and a job has 5 s
# to end by itself, and as long after signals); for one command (the guard needs 30 s).
SLACK_S, GONE_S, PATIENCE_S = 4.0, 20.0, 150.0
SETS = ("one", "two", "three", "four", "short")
QUEUE = ("mobilenet-train-b2", "triad", "gemm", "home-made")
BOTH = {"FAKE_CUDA_UUIDS": f"{UUID},{OTHER_UUID}"}
KINDS = {
    "supervisor": SUPERVISOR,
    "guard": guard.__name__,
    "shim": "shim.py",
    "job": "fake_job",
    "queue": "advisor_cli.place",
}


@dataclass
class Site:
    # What all threads share; times are of the clock of the host, s.

    host: FakeHost
    tokens: Mapping[str, str]
    server: LaunchServer = field(init=False)
    over: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)
    faults: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    launched: set[str] = field(default_factory=set[str])
    posted: dict[Any, float | None] = field(default_factory=dict[Any, float | None])
    away_until: float = float("inf")
    # When the service was killed, stopped or starting last.
    queue_pid: int = 0
    stood: list[tuple[str, int, Mapping[str, str], float, float]] = field(default_factory=list[Any])
    # Who was stopped and went on by our hands: kind, number, variables, from when to when.

    def fault(self, text: str) -> None:
        self.faults.append(f"{time.strftime('%H:%M:%S')} {text}")
        print("!", self.faults[-1], flush=True)

    def folders(self) -> Iterator[Any]:
        return iter(list_folders(self.host.folder / "home" / "launches"))

    def is_in(self, launch_id: str, *states: str) -> bool:
        return any(
            f.launch_id == launch_id and f.read_status().state in states for f in self.folders()
        )

    def command(self, *words: str) -> Any:
        done = self.host.advisor(*words, **BOTH)
        self.counts[f"advisor {words[0]}: exit {done.returncode}"] += 1
        if "Traceback" in done.stderr:
            self.fault(f"advisor {' '.join(words)}: {done.stderr[-1500:]}")
        return done

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        # Asked until there is an answer, as by a caller whose service is started again.
        key = f"{time.time_ns()}-{threading.get_ident()}"
        while True:
            begun_s = time.time()
            with suppress(OSError, ValueError, HTTPException, AttributeError):
                answer = self.server.ask(method, path, body, "admin", Idempotency_Key=key)
                if answer.status < 500:
                    self.counts[f"{method} {path.partition('?')[0][:16]}: {answer.status}"] += 1
                    return answer
            if self.away_until < begun_s:
                self.fault(f"no answer to {method} {path} of a service that nobody touched")
            time.sleep(0.2)


def serve(site: Site) -> None:
    # The service, struck now and then, and started again as systemd does.
    chance, options = random.Random("service"), ("--launching", "--ms-per-s", "10000")
    while not site.closed.is_set():
        with launch_server(site.host, site.tokens, *options, **BOTH) as site.server:
            wait_until(lambda: site.server.ask("GET", "/readyz").status == 200, 60)
            site.away_until = time.time()
            while not site.over.wait(chance.uniform(5, 25)):
                site.away_until = float("inf")
                if chance.random() < 0.5:
                    site.counts["SIGKILL service"] += 1
                    break
                site.counts["SIGSTOP service"] += 1
                site.server.process.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(1, 15))
                site.server.process.send_signal(signal.SIGCONT)
                site.away_until = time.time()
            else:
                if code := site.server.process.wait():
                    site.fault(f"the service ended with {code}")


def strike(site: Site, kind: str) -> None:
    # Kill somebody of a kind, or stop him; now and then it is left to others to let him go on.
    chance = random.Random(kind)
    while not site.over.wait(chance.uniform(0.5, 4) * (5 if kind == "queue" else 1)):
        found = [pid for pid, of in processes_of(site.host).items() if KINDS[kind] in of]
        found = [site.queue_pid] * bool(site.queue_pid) if kind == "queue" else found
        if not found:
            continue
        pid, stops, begun_s = chance.choice(found), chance.random() < 0.6, time.time()
        marks = environment_of(pid)
        site.counts[f"{'SIGSTOP' if stops else 'SIGKILL'} {kind}"] += 1
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP if stops else signal.SIGKILL)
            if stops and (kind == "queue" or chance.random() < 0.85):
                time.sleep(chance.choice((chance.uniform(2, 8), chance.uniform(12, 22))))
                if is_stopped(pid):
                    os.kill(pid, signal.SIGCONT)
                    site.stood.append((kind, pid, marks, begun_s, time.time()))


def post(site: Site) -> None:
    # Points and observations; what was answered 200 is to be found ever after.
    chance, number = random.Random("post"), 0
    while not site.over.wait(chance.expovariate(5)):
        number += 1
        kind, made = chance.choice((("points", pair_point), ("observations", observation)))
        one = made(number, power_w=800 + 300 * chance.random())
        if site.ask("POST", f"/v1/{kind}", {kind: [to_row(one)]}).status == 200:
            site.posted[one.started_at, *one.jobs] = one.power_w


def launch(site: Site) -> None:
    # Sets of three, one after the other: begun, joined and ended by HTTP or by commands.
    chance = random.Random("launch")
    while not site.over.wait(chance.uniform(0, 1)):
        by_http, jobs = chance.random() < 0.5, chance.sample(SETS, 3)
        if by_http:
            body = {"jobs": [{"job": job} for job in jobs], "split": "26/26/26", "gpu": UUID}
            launch_id = site.ask("POST", "/v1/launches", body).json.get("launch_id")
        else:
            words = ("launch", *jobs, "--split", "26/26/26", "--gpu", UUID, "--detach")
            launch_id = site.command(*words).stdout.strip()
        if not launch_id:
            continue
        site.launched.add(launch_id)
        wait_until(partial(site.is_in, launch_id, "running", *OVER), chance.choice((1, 30)))
        for _ in range(chance.randint(0, 3)):
            site.over.wait(chance.uniform(0, 2))
            asked = {"jobs": [{"job": "fifth"}], "share_percent": 26}
            if by_http:
                site.ask("POST", f"/v1/launches/{launch_id}/joins", asked)
            else:
                site.command("launch", "--join", launch_id, "fifth", "--share", "26")
            site.counts["joins asked for"] += 1
        site.over.wait(chance.choice((2, 5, 8, chance.uniform(15, 40))))
        if by_http:
            site.ask("DELETE", f"/v1/launches/{launch_id}")
        else:
            site.command("launches", "stop", launch_id)
        if not wait_until(partial(site.is_in, launch_id, *OVER), PATIENCE_S):
            site.fault(f"{launch_id} did not end within {PATIENCE_S:g} s")


def queues(site: Site) -> None:
    # A queue after the other; the same command takes up one that was killed, or had failures.
    while not site.over.is_set():
        before, code, said, errors = {one.launch_id for one in site.folders()}, -9, "", ""
        while code in (-9, 5):
            with site.host.start_advisor("run", *QUEUE, "--gpus", "1", "--json", **BOTH) as queue:
                site.queue_pid = queue.pid
                said, errors = queue.communicate(timeout=2 * PATIENCE_S)
                site.queue_pid, code = 0, queue.returncode
            site.counts[f"advisor run: exit {code}"] += 1
        new = [folder.read_status() for folder in site.folders() if folder.launch_id not in before]
        ended = [(job.job, one.launch_id) for one in new for job in one.jobs if job.exit_code == 0]
        rows: list[Any] = json.loads(said.splitlines()[-1])["jobs"] if code == 0 else []
        told = [(row["job"], row["launch_id"]) for row in rows if row["state"] == "done"]
        if sorted(told) != sorted(one for one in ended if one[0] in QUEUE) or len(told) != 4:
            site.fault(f"a queue ended with {code}: {errors[-1000:]}, {told}; finished {ended}")
        site.counts["queues done"] += 1


class Looks:
    # What each door shows, beside what the processes are.

    def __init__(self, site: Site) -> None:
        self._site = site
        self._there = defaultdict[Any, float](time.time)
        self._able = defaultdict[Any, float](time.time)
        # When a supervisor, by number, or a job, by launch and name, was last seen, and able.
        self._watched_s = 0.0
        self._over = dict[str, tuple[float, Any]]()
        self._steps = dict[tuple[str, int], float]()
        self.kept = dict[str, bytes]()

    def watch(self) -> None:
        # Who can run, several times a second.
        while not self._site.closed.wait(0.2):
            begun_s = time.time()
            for pid, words in processes_of(self._site.host).items():
                marks, moment = environment_of(pid), time.time()
                key = (Path(marks.get(LAUNCH_MARK, "")).name, marks.get("JOB"))
                key = key if "fake_job" in words else pid
                self._there[key] = moment
                if not is_stopped(pid):
                    self._able[key] = moment
            self._watched_s = begun_s

    def look(self) -> None:
        # Through every door, one after the other.
        site = self._site
        doors: dict[str, Callable[[], Any]] = {
            "its folder": lambda: [*self._of_folders()],
            "/v1/launches": lambda: site.ask("GET", "/v1/launches?limit=50").json["launches"],
            "/v1/overview": lambda: site.ask("GET", "/v1/overview").json["running"],
            "launches --json": lambda: site.host.answer("launches", **BOTH)["launches"],
            "top --json": lambda: site.host.answer("top", **BOTH)["running"],
        }
        while not site.closed.wait(0.5):
            for door, shown in doors.items():
                asked_s = time.time()
                for one in shown():
                    self._hold(door, asked_s, one)
                site.counts["looks"] += 1
            self._hold_metrics(time.time(), site.ask("GET", "/metrics").text)
            self._hold_store()

    def _of_folders(self) -> Iterator[dict[str, Any]]:
        for folder in self._site.folders():
            name, one = folder.launch_id, to_plain(folder.read_status())
            if one["state"] in OVER or name in self._over:
                since_s, last = self._over.setdefault(name, (time.time(), one))
                if last != one:
                    self._site.fault(f"{name} was over as {last}, and is {one}")
                if GONE_S < time.time() - since_s < 2 * GONE_S:
                    mark = str(folder.path)
                    for pid, words in processes_of(self._site.host).items():
                        if environment_of(pid).get(LAUNCH_MARK) == mark:
                            self._site.fault(f"{name} is over, and there is {words}")
            for n, job in enumerate(one["jobs"]):
                if job["steps"] < self._steps.get((name, n), 0):
                    self._site.fault(f"{name} had {self._steps[name, n]} steps, has {job['steps']}")
                self._steps[name, n] = job["steps"]
            for line in observation_lines(folder):
                self.kept[from_row(Observation, json_row(line)).point_id] = line
            yield one

    def _hold(self, door: str, asked_s: float, one: Any) -> None:
        # A launch that is shown as running is what its processes were when that was written.
        name, is_heard = one["launch_id"], one["silent_s"] is None
        what, written_s = f"{door}: {name}", datetime.fromisoformat(one["updated_at"]).timestamp()
        # Who writes could; and who was not looked for meanwhile may well have been there.
        heard_s, gone_s = (of[one["supervisor_pid"]] for of in (self._able, self._there))
        heard_s = max(heard_s, written_s)
        asked_s, written_s = (min(at_s, self._watched_s) for at_s in (asked_s, written_s))
        if not is_heard and any(job["proven"] for job in one["jobs"]):
            self._site.fault(f"{what} is silent, and a job of it proven")
        if one["state"] != "running" or not is_heard:
            return
        if max(asked_s - heard_s - SILENT_S, asked_s - gone_s) > SLACK_S:
            self._site.fault(f"{what} runs, without a supervisor: {asked_s}, {heard_s}, {gone_s}")
        for job in one["jobs"]:
            if job["outcome"] == "running" and (key := (name, job["job"])) in self._there:
                if (of_s := written_s - self._there[key]) > SLACK_S:
                    self._site.fault(f"{what}: {job} runs, {of_s:.1f} s after its end")
                elif (of_s := written_s - self._able[key]) > SLACK_S and not job["paused"]:
                    self._site.fault(f"{what}: {job} is not paused, and stands for {of_s:.1f} s")

    def _hold_metrics(self, asked_s: float, text: str) -> None:
        # Power of a GPU is shown where a launch on it was heard of lately.
        found = [folder.read_status() for folder in self._site.folders()]
        for gpu in (UUID, OTHER_UUID):
            on = [one for one in found if one.gpu_uuid == gpu]
            of = [datetime.fromisoformat(one.updated_at).timestamp() for one in on]
            is_shown = f'advisor_observed_power_watts{{gpu="{gpu}"}}' in text
            # A look of the service a second, at what was written a second ago.
            if (
                is_shown
                and min(asked_s, self._watched_s) - max(of, default=0) > SILENT_S + SLACK_S + 2
            ):
                self._site.fault(f"/metrics shows power of {gpu}, on which nobody could run")

    def _hold_store(self) -> dict[str, Observation]:
        # Whatever was acknowledged before, no stretch twice, and no measurement that is none.
        posted, site = dict(self._site.posted), self._site
        with open_store(None, site.host.folder / "home") as store:
            seen, pairs = store.observations(), store.pair_points()
        powers: Mapping[Any, Any] = {
            (one.started_at, *one.jobs): one.power_w for one in (*seen, *pairs)
        }
        if lost := [key for key, power_w in posted.items() if powers.get(key) != power_w]:
            site.fault(f"{len(lost)} of {len(posted)} acknowledged records are lost: {lost[:3]}")
        twice = Counter((one.launch_id, one.stretch) for one in seen).most_common(1)
        if twice and twice[0][1] > 1:
            site.fault(f"a stretch is stored twice: {twice}")
        return {one.point_id: one for one in seen}

    def at_the_end(self) -> None:
        # All that launches had kept is stored as it was, and all that was accepted is over.
        site, stored = self._site, self._hold_store()
        if gone := [line for name, line in self.kept.items() if name not in stored]:
            site.fault(f"{len(gone)} observations of launches are not stored: {gone[:3]}")
        for name in self.kept.keys() & stored.keys():
            self._hold_flags(stored[name])
        for folder in site.folders():
            site.launched.discard(folder.launch_id)
            if not folder.read_status().over or any(j.outcome in GOING for _, j in joins(folder)):
                site.fault(f"{folder.launch_id} or a join of it is not over")
        if site.launched:
            site.fault(f"launches that were accepted are lost: {site.launched}")
        site.counts["observations of launches"] = len(self.kept)

    def _hold_flags(self, one: Observation) -> None:
        # A time in which somebody stood still is no measurement without a flag.
        begun_s = datetime.fromisoformat(one.started_at).timestamp()
        for kind, pid, marks, since_s, until_s in self._site.stood:
            status = next(f for f in self._site.folders() if f.launch_id == one.launch_id)
            is_own = pid == status.read_status().supervisor_pid
            is_job = Path(marks.get(LAUNCH_MARK, "")).name == one.launch_id and kind == "job"
            # Where the supervisor stood as well, it saw nobody stand.
            flags, least_s = ({UNWATCHED}, 11) if is_own else ({UNWATCHED, PAUSED}, 3)
            is_inside = begun_s + 1 < since_s and until_s < begun_s + one.overlap_s - 1
            counts = (is_own or is_job) and is_inside and until_s - since_s > least_s
            if counts and flags.isdisjoint(one.flags):
                self._site.fault(f"{kind} {marks.get('JOB')} stood, without a flag: {one}")
        for part in one.parts:
            # What its sleeps allow at its share.
            if (part.rate or 0) > 4.0 * part.share_percent * 1.05 + 1:
                self._site.fault(f"{part.job} of {one.launch_id} is said to do {part.rate} steps/s")


@pytest.fixture
def site(host: FakeHost) -> Iterator[Site]:
    for gpu in ("gpu0", "gpu1"):
        (host.folder / "nvml" / gpu).mkdir(exist_ok=True)
        (host.folder / "nvml" / gpu / "name").write_text("NVIDIA H100 80GB HBM3")
    (host.folder / "nvml" / "gpu_count").write_text("2")
    for name in (*SETS, "fifth", *QUEUE):
        steps = "2000" if name in QUEUE else "800" if name == "short" else "0"
        host.write_job(name, "--steps", steps, env={"JOB": name})
    with no_leftovers(host):
        yield Site(host, make_tokens(host, "mixed"))


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 1200)
def test_nothing_is_lost_where_processes_are_killed_and_stopped_at_random(site: Site) -> None:
    looks = Looks(site)
    staying = [partial(serve, site), looks.watch, looks.look]
    acting = [partial(act, site) for act in (post, launch, queues)]
    acting += [partial(strike, site, kind) for kind in KINDS]
    threads = [threading.Thread(target=act) for act in (*staying, *acting)]
    threading.excepthook = lambda of: site.fault(f"{of.thread}: {of.exc_value!r}")
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    site.over.set()
    for thread in threads[len(staying) :]:
        thread.join()
    site.counts["launches of three"] = len(site.launched)
    for folder in site.folders():
        if not folder.read_status().over:
            site.command("launches", "stop", folder.launch_id)
    words = ("launch", "one", "two", "three", "--split", "26/26/26", "--gpu", UUID)
    if (done := site.command(*words, "--duration", "5")).returncode:
        site.fault(f"an undisturbed launch failed: {done.stderr[-500:]}")
    time.sleep(3 * SLACK_S)  # the service brings in what was kept last
    site.closed.set()
    for thread in threads[1:]:
        thread.join()
    site.server.process.terminate()
    threads[0].join()
    looks.at_the_end()
    if not wait_until(lambda: not processes_of(site.host), 10):
        site.fault(f"processes are left: {processes_of(site.host)}")
    print(*(f"{count:>6} {name}" for name, count in sorted(site.counts.items())), sep="\n")
    assert not site.faults
