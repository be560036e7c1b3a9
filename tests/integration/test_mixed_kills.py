"""Kills and stops at random, under load: nothing is lost, and nothing passes for what it is not.

    KILLS_S=600 .venv/bin/pytest -s -n 0 -m nightly tests/integration/test_mixed_kills.py

On one GPU sets of three are launched, joined and ended, by HTTP and by commands; on the other one
queue of jobs follows the next. Two clients post points and observations. Meanwhile somebody sends
SIGKILL, or SIGSTOP and SIGCONT, to the service, supervisors, guards, shims, jobs and the queue's
command, and everything is looked at through every door.
"""

import fcntl
import json
import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
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
from advisor.launch.spec import OVER, SILENT_S
from advisor.runtime.cgroup import cgroup_prefix, left_cgroups
from advisor.runtime.processes import is_stopped, owner_of, wait_until
from advisor_data import open_store
from advisor_profiling import SUPERVISOR

SECONDS = float(os.environ.get("KILLS_S", "60"))
SLACK_S = 4.0
"""What a busy host and the time between two looks add to each bound."""
GONE_S = 15.0
"""Within which nobody lives of a launch that is over: shims end their jobs 3 s after those that
watch are gone, and a job has 5 s to end by itself."""
PATIENCE_S = 150.0
"""For one command: the guard needs 30 s, a stop as long again."""
SETS = ("one", "two", "three", "four", "short")
QUEUE = ("mobilenet-train-b2", "triad", "gemm", "home-made")
BOTH = {"FAKE_CUDA_UUIDS": f"{UUID},{OTHER_UUID}"}
KINDS = {
    "supervisor": SUPERVISOR,
    "guard": guard.__name__,
    "shim": "shim.py",
    "job": "fake_job",
    "queue": "--gpus 1",
}


@dataclass
class Site:
    """What all threads share; moments are of the clock that never jumps, s."""

    host: FakeHost
    tokens: Mapping[str, str]
    server: LaunchServer | None = None
    over: threading.Event = field(default_factory=threading.Event)
    closed: threading.Event = field(default_factory=threading.Event)
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    launched: set[str] = field(default_factory=set)
    posted: dict[str, Any] = field(default_factory=dict)
    away: list[list[float]] = field(default_factory=list)
    """From when to when the service was killed, stopped or starting."""
    queue: Forked | None = None
    stopped: list[tuple[str, str, str, float, float]] = field(default_factory=list)
    """Kind, launch, job, and from when to when: who stood still and went on by our hands."""

    def fault(self, text: str) -> None:
        self.faults.append(f"{datetime.now(UTC):%H:%M:%S} {text}")
        print("!", self.faults[-1], flush=True)

    def command(self, *words: str) -> Any:
        done = self.host.advisor(*words, **BOTH)
        self.counts[f"advisor {words[0]}: exit {done.returncode}"] += 1
        if "Traceback" in done.stderr:
            self.fault(f"advisor {' '.join(words)}: {done.stderr[-1500:]}")
        return done

    def is_away(self, begun_s: float) -> bool:
        """Whether nobody could count on the service at some moment since then."""
        return any(until > begun_s for _, until in self.away)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Asked until there is an answer, as by a caller whose service is restarted."""
        key = f"{time.monotonic_ns()}-{threading.get_ident()}"
        begun_s = first_s = time.monotonic()
        while time.monotonic() - first_s < PATIENCE_S:
            begun_s = time.monotonic()
            with suppress(OSError, ValueError, HTTPException, AttributeError):
                answer = self.server.ask(method, path, body, "admin", Idempotency_Key=key)
                if answer.status < 500 or not self.is_away(begun_s):
                    break
            if not self.is_away(begun_s):
                self.fault(f"no answer to {method} {path} of a service that nobody touched")
            time.sleep(0.2)
        # A launch may be over, and a GPU taken, by the time that one is asked about it.
        if answer.status >= 500 or answer.status == 400:
            self.fault(f"{answer.status} to {method} {path}: {answer.text[:300]}")
        self.counts[f"{method} {path.partition('?')[0][:12]}: {answer.status}"] += 1
        return answer


def serve(site: Site) -> None:
    """The service, struck now and then, and started again as systemd does."""
    chance, last = random.Random("service"), False
    while not last:
        site.away.append([time.monotonic(), float("inf")])
        with launch_server(
            site.host, site.tokens, "--launching", "--ms-per-s", "10000", **BOTH
        ) as site.server:
            wait_until(lambda: site.server.ask("GET", "/readyz").status == 200, 60)
            site.away[-1][1] = time.monotonic()
            while not site.over.wait(chance.uniform(5, 25)):
                site.away.append([time.monotonic(), float("inf")])
                if chance.random() < 0.5:
                    site.counts["SIGKILL service"] += 1
                    break
                site.counts["SIGSTOP service"] += 1
                site.server.process.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(1, 15))
                site.server.process.send_signal(signal.SIGCONT)
                site.away[-1][1] = time.monotonic()
            else:
                last = site.closed.wait()
                site.server.process.terminate()
                if site.server.process.wait(30):
                    site.fault(f"the service ended with {site.server.process.returncode}")


def strike(site: Site) -> None:
    """Kill or stop somebody every few seconds."""
    chance = random.Random("strike")
    while not site.over.wait(chance.uniform(0.3, 2)):
        kind = chance.choice(list(KINDS))
        found = [(pid, of) for pid, of in processes_of(site.host).items() if KINDS[kind] in of]
        if not found:
            continue
        pid, _ = chance.choice(found)
        marks = variables(pid)
        name = Path(marks.get(LAUNCH_MARK) or (chance_path(pid) or "")).name
        if chance.random() < 0.4:
            send(pid, signal.SIGKILL)
            site.counts[f"SIGKILL {kind}"] += 1
            continue
        site.counts[f"SIGSTOP {kind}"] += 1
        begun_s, for_s = time.time(), chance.choice((chance.uniform(2, 8), chance.uniform(12, 22)))
        send(pid, signal.SIGSTOP)
        if kind != "queue" and chance.random() < 0.15:
            continue  # somebody else has to

        def go_on(*of: Any, pid: int = pid) -> None:
            if is_stopped(pid):
                send(pid, signal.SIGCONT)
                site.stopped.append((*of, time.time()))

        threading.Timer(for_s, go_on, (kind, name, marks.get("JOB", ""), begun_s)).start()


def chance_path(pid: int) -> str:
    """The folder that a supervisor has as its last word."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2].decode()
    return ""


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def variables(pid: int) -> dict[str, str]:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        return dict(line.split("=", 1) for line in lines if "=" in line)
    return {}


def post(site: Site) -> None:
    """Points and observations; what was answered 200 is to be found ever after."""
    chance, number = random.Random("post"), 0
    while not site.over.wait(chance.expovariate(5)):
        number += 1
        kind, made = chance.choice((("points", pair_point), ("observations", observation)))
        one = made(number, power_w=800 + 300 * chance.random())
        if site.ask("POST", f"/v1/{kind}", {kind: [to_row(one)]}).status == 200:
            site.posted[one.started_at, one.jobs] = one.power_w
        site.ask("GET", "/v1/observations?limit=20")


def launch(site: Site) -> None:
    """Sets of three, one after the other: begun, joined and ended by HTTP or by commands."""
    chance, free_s = random.Random("launch"), time.monotonic()
    while not site.over.is_set():
        by_http, jobs = chance.random() < 0.5, chance.sample(SETS, 3)
        body = {"jobs": [{"job": job} for job in jobs], "split": "26/26/26", "gpu": UUID}
        if by_http:
            said = site.ask("POST", "/v1/launches", body).json
            launch_id = said.get("launch_id")
        else:
            words = ("launch", *jobs, "--split", "26/26/26", "--gpu", UUID, "--detach")
            launch_id = site.command(*words).stdout.strip()
        if not launch_id:
            if time.monotonic() - free_s > PATIENCE_S:
                site.fault(f"nothing could be launched for {PATIENCE_S:g} s")
            time.sleep(1)
            continue
        site.launched.add(launch_id)
        site.counts["launches of three"] += 1
        time.sleep(chance.uniform(0, 4))
        for _ in range(chance.randrange(3)):
            if by_http:
                asked = {"jobs": [{"job": "fifth"}], "share_percent": 26}
                site.ask("POST", f"/v1/launches/{launch_id}/joins", asked)
            else:
                site.command("launch", "--join", launch_id, "fifth", "--share", "26")
            site.counts["joins asked for"] += 1
        time.sleep(chance.choice((2, 5, 8, chance.uniform(15, 40))))
        if by_http:
            site.ask("DELETE", f"/v1/launches/{launch_id}")
        else:
            site.command("launches", "stop", launch_id)
        if not wait_until(lambda: launch_id not in active(site), PATIENCE_S):
            site.fault(f"{launch_id} did not end within {PATIENCE_S:g} s")
        free_s = time.monotonic()


def active(site: Site) -> dict[str, dict[str, Any]]:
    """Launches that are not over, as the records on disk have them."""
    found = {f.launch_id: to_plain(f.read_status()) for f in list_folders(launches(site))}
    return {name: one for name, one in found.items() if one["state"] not in OVER}


def launches(site: Site) -> Path:
    return site.host.folder / "home" / "launches"


def queues(site: Site) -> None:
    """A queue after the other; the same command takes up one that was killed, or had failures."""
    while not site.over.is_set():
        before = {folder.launch_id for folder in list_folders(launches(site))}
        begun_s, code, failed = time.monotonic(), None, 0
        while code != 0:
            with site.host.start_advisor(
                "run", *QUEUE, "--gpus", "1", "--json", **BOTH
            ) as site.queue:
                said, errors = site.queue.communicate(timeout=2 * PATIENCE_S)
            code = site.queue.returncode
            failed += code == 5
            site.counts[f"advisor run: exit {code}"] += 1
            if code not in (0, 5, -9) or "Traceback" in errors:
                site.fault(f"advisor run: exit {code}: {errors[-1000:]}")
                return
            if time.monotonic() - begun_s > 4 * PATIENCE_S:
                site.fault(f"a queue of {len(QUEUE)} jobs takes too long: {said[-1000:]}")
        site.counts["queues done"] += 1
        came = [
            job.job
            for folder in list_folders(launches(site))
            if folder.launch_id not in before
            for job in folder.read_status().jobs
            if job.outcome == "finished" and job.job in QUEUE
        ]
        if sorted(came) != sorted(QUEUE):
            site.fault(f"a queue that is done has finished {sorted(came)}")
        for job in json.loads(said.splitlines()[-1])["jobs"]:
            if job["state"] != "done" or job["launch_id"] in before:
                site.fault(f"a queue that is done shows {job}")


class Looks:
    """What each door shows, beside what the processes are."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._able: dict[int, float] = defaultdict(time.time)
        """When each process was last seen able to run."""
        self._lives = dict[tuple[str, str], float]()
        """When each job of a launch last had a process that could run, and one at all."""
        self._there = dict[tuple[str, str], float]()
        self._over = dict[str, tuple[float, Any]]()
        self._steps = dict[tuple[str, int], float]()
        self.kept = dict[str, bytes]()

    def watch(self) -> None:
        """Who can run, several times a second: what is shown is held against this."""
        while not self._site.closed.wait(0.2):
            self._forget_ended()
            moment = time.time()
            for pid, words in processes_of(self._site.host).items():
                marks, stands = variables(pid), is_stopped(pid)
                if not stands:
                    self._able[pid] = moment
                if "fake_job" in words and (job := marks.get("JOB")):
                    key = Path(marks.get(LAUNCH_MARK, "")).name, job
                    self._there[key] = moment
                    if not stands:
                        self._lives[key] = moment

    def _forget_ended(self) -> None:
        """The fake driver knows processes by number, and a host gives these away again."""
        host = self._site.host.folder
        for file in (*host.glob("nvml/*/contexts/*"), *host.glob("run/*/mps/clients/*")):
            if owner_of(int(file.name.partition(".")[0])) is None:
                file.unlink(missing_ok=True)

    def look(self) -> None:
        """Through every door, one after the other."""
        site = self._site
        while not site.closed.wait(0.5):
            site.counts["looks"] += 1
            self._at("its folder", time.time(), self._of_folders())
            for door, ask in (
                ("GET /v1/launches", partial(site.ask, "GET", "/v1/launches?limit=50")),
                ("GET /v1/overview", partial(site.ask, "GET", "/v1/overview")),
            ):
                asked_s, said = time.time(), ask().json
                self._at(door, asked_s, said.get("launches") or said["running"])
            asked_s, text = time.time(), site.ask("GET", "/metrics").text
            for gpu in (UUID, OTHER_UUID):
                if f'advisor_observed_power_watts{{gpu="{gpu}"}}' in text:
                    self._hold_gpu(gpu, asked_s)
            asked_s = time.time()
            self._at("launches --json", asked_s, answer(site, "launches")["launches"])
            asked_s = time.time()
            self._at("top --json", asked_s, answer(site, "top")["running"])
            self._hold_store()

    def _of_folders(self) -> Iterator[dict[str, Any]]:
        for folder in list_folders(launches(self._site)):
            name, plain = folder.launch_id, to_plain(folder.read_status())
            is_over = plain["state"] in OVER
            since_s, last = self._over.setdefault(name, (time.time(), plain)) if is_over else (0, 0)
            if is_over and last != plain:
                self._site.fault(f"{name} was over as {last}, and is {plain}")
            elif name in self._over and not is_over:
                self._site.fault(f"{name} was over, and is {plain['state']}")
            if is_over and time.time() - since_s < 2 * GONE_S:
                self._hold_gone(str(folder.path), time.time() - since_s)
            for n, job in enumerate(plain["jobs"]):
                if job["steps"] < self._steps.get((name, n), 0):
                    self._site.fault(f"{name} had {self._steps[name, n]} steps, has {job['steps']}")
                self._steps[name, n] = job["steps"]
            for line in observation_lines(folder):
                self.kept[from_row(Observation, json_row(line)).point_id] = line
            yield plain

    def _at(self, door: str, asked_s: float, shown: Any) -> None:
        for one in shown:
            name, heard = one["launch_id"], one["silent_s"] is None
            if one["state"] in OVER:
                continue
            if not heard and any(job["proven"] for job in one["jobs"]):
                self._site.fault(f"{door}: {name} is silent, and a job of it proven")
            if not heard or one["state"] != "running":
                continue
            of_s = asked_s - self._able[one["supervisor_pid"]]
            if of_s > SILENT_S + SLACK_S:
                self._site.fault(f"{door}: {name} runs, {of_s:.1f} s after its supervisor could")
            written_s = datetime.fromisoformat(one["updated_at"]).timestamp()
            for job in one["jobs"]:
                self._hold_job(f"{door}: {job['job']} of {name}", name, job, written_s)

    def _hold_job(self, what: str, name: str, job: Any, written_s: float) -> None:
        key = name, job["job"]
        if job["outcome"] != "running" or key not in self._there:
            return
        gone_s, stood_s = written_s - self._there[key], written_s - self._lives.get(key, written_s)
        if gone_s > SLACK_S:
            self._site.fault(f"{what} runs, proven {job['proven']}, {gone_s:.1f} s after its end")
        elif stood_s > SLACK_S and not job["paused"]:
            self._site.fault(f"{what} is not paused, though it stands for {stood_s:.1f} s")

    def _hold_gpu(self, gpu: str, asked_s: float) -> None:
        """Power of a GPU is shown where a launch on it was heard of lately."""
        heard_s = [
            self._able[status.supervisor_pid or 0]
            for folder in list_folders(launches(self._site))
            if (status := folder.read_status()).gpu_uuid == gpu
        ]
        # A look of the service a second, and what it looked at before.
        if asked_s - max(heard_s, default=0) > SILENT_S + SLACK_S + 2:
            self._site.fault(f"/metrics shows power of {gpu}, on which nobody could run")

    def _hold_gone(self, mark: str, for_s: float) -> None:
        left = [
            pid for pid in processes_of(self._site.host) if variables(pid).get(LAUNCH_MARK) == mark
        ]
        if left and for_s > GONE_S + SLACK_S:
            self._site.fault(f"of {mark}, over for {for_s:.1f} s, there are {left}")

    def _hold_store(self) -> None:
        """Whatever was acknowledged before, and no stretch twice."""
        posted, site = dict(self._site.posted), self._site
        with open_store(None, site.host.folder / "home") as store:
            seen, pairs = store.observations(), store.pair_points()
        powers = {(one.started_at, one.jobs): one.power_w for one in (*seen, *pairs)}
        if lost := [key for key, power_w in posted.items() if powers.get(key) != power_w]:
            site.fault(f"{len(lost)} of {len(posted)} acknowledged records are lost: {lost[:3]}")
        twice = Counter((one.launch_id, one.stretch) for one in seen)
        if more := [key for key, count in twice.items() if count > 1]:
            site.fault(f"stretches are stored twice: {more}")

    def at_the_end(self) -> None:
        """What is stored, whether it is what happened, and what is left."""
        site, home = self._site, self._site.host.folder / "home"
        with open_store(None, home) as store:
            stored = {one.point_id: one for one in store.observations()}
        if gone := [line for name, line in self.kept.items() if name not in stored]:
            site.fault(f"{len(gone)} observations of launches are not stored: {gone[:3]}")
        for one in stored.values():
            self._hold_flags(one)
        folders = {folder.launch_id: folder for folder in list_folders(launches(site))}
        if open_ones := site.launched - folders.keys() or active(site):
            site.fault(f"launches that were accepted are not over: {open_ones}")
        for folder in folders.values():
            if any(job.outcome in ("waiting", "starting", "running") for _, job in joins(folder)):
                site.fault(f"a join of {folder.launch_id} waits for ever")
        for gpu in (UUID, OTHER_UUID):
            if left := left_cgroups(cgroup_prefix(gpu, str(site.host.folder / "run"))):
                site.fault(f"control groups are left: {left}")
        if held := [path for path in (site.host.folder / "locks").rglob("*") if is_held(path)]:
            site.fault(f"locks are held: {held}")
        for database in home.glob("*.db"):
            [(whole,)] = sqlite3.connect(database).execute("PRAGMA integrity_check").fetchall()
            if whole != "ok":
                site.fault(f"{database.name}: {whole}")
        site.counts["observations of launches"] = len(self.kept)
        site.counts["records that the service took"] = len(site.posted)

    def _hold_flags(self, one: Observation) -> None:
        """A time in which somebody stood still is no measurement without a flag."""
        begun_s = datetime.fromisoformat(one.started_at).timestamp()
        ended_s = begun_s + one.overlap_s
        for kind, name, job, since_s, until_s in self._site.stopped:
            if name != one.launch_id or not begun_s + 1 < since_s < until_s < ended_s - 1:
                continue
            wants = {"supervisor": (UNWATCHED, SILENT_S), "job": (PAUSED, 2.0)}.get(kind)
            if wants and until_s - since_s > wants[1] + 1 and wants[0] not in one.flags:
                self._site.fault(
                    f"{kind} {job} of {name} stood for {until_s - since_s:.1f} s: {one.flags}"
                )
        for part in one.parts if one.launch_id in self._over else ():
            # What its sleeps allow at its share.
            if (part.rate or 0) > 4.0 * part.share_percent * 1.05 + 1:
                self._site.fault(f"{part.job} of {one.launch_id} is said to do {part.rate} steps/s")


def answer(site: Site, *words: str) -> Any:
    return json.loads(site.command(*words, "--json").stdout)


def is_held(path: Path) -> bool:
    if path.is_file():
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


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
    acting: list[Callable[[], None]] = [
        *(partial(act, site) for act in (strike, post, launch, queues)),
    ]
    staying = [partial(serve, site), looks.watch, looks.look]
    threads = [threading.Thread(target=act) for act in (*staying, *acting)]
    threading.excepthook = lambda of: site.fault(f"{of.thread}: {of.exc_value!r}")
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)
    site.over.set()
    for thread in threads[len(staying) :]:
        thread.join()
    for launch_id in active(site):
        site.command("launches", "stop", launch_id)
    words = ("launch", "one", "two", "three", "--split", "26/26/26", "--gpu", UUID)
    if (done := site.command(*words, "--duration", "5")).returncode:
        site.fault(f"an undisturbed launch failed: {done.stderr[-500:]}")
    time.sleep(3 * SLACK_S)  # the service brings in what was kept last
    site.closed.set()
    for thread in threads:
        thread.join()
    looks.at_the_end()
    if not wait_until(lambda: not processes_of(site.host), 10):
        site.fault(f"processes are left: {processes_of(site.host)}")
    print(*(f"{count:>6} {name}" for name, count in sorted(site.counts.items())), sep="\n")
    assert not site.faults, "\n".join(site.faults)
