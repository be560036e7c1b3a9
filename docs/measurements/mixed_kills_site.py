"""What `mixed_kills.py` lets work: a host with two fake GPUs, a service, requests, launches."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from host import OTHER_UUID, UUID, FakeHost
from raw_server import ask
from store_points import observation

from advisor.formats.rows import to_row
from advisor.launch.records.folder import LaunchFolder
from advisor.runtime.host.processes import wait_until

GPUS = (UUID, OTHER_UUID)
RESTART_S, WATCHDOG_S = 2.0, 30.0
"""As in deploy/advisor.service: `RestartSec`, and `WatchdogSec` for a service that stands still."""

ANSWER_S, COMMAND_S = 20.0, 150.0
"""How long one request, and one command, may take; the guard needs 30 s, a stop as long again."""

PAIRS = (("gemm", "triad"), ("fft", "sorting"), ("bert-infer", "triad"), ("gemm", "vit-infer"))

_ABOUT_LAUNCHES = ("launch", "join", "stop")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as its caller saw it, s on the monotonic clock; tried again until answered."""

    what: str
    begun_s: float
    took_s: float
    tries: int
    status: int


@dataclass(slots=True)
class Site:
    """All that threads share."""

    host: FakeHost
    seed: int
    port: int = 0
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    over: threading.Event = field(default_factory=threading.Event)
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    asked: list[Asked] = field(default_factory=list)
    posted: dict[str, float] = field(default_factory=dict)
    """Power of each observation that the service has said to keep, by its launch."""
    launched: set[str] = field(default_factory=set)
    """Launches that were accepted."""
    away: list[tuple[float, float]] = field(default_factory=list)
    """From when to when the service was killed, stopped or starting, s."""
    begun_s: float = field(default_factory=time.monotonic)

    def fault(self, text: str) -> None:
        """An invariant is broken."""
        self.faults.append(f"{time.monotonic() - self.begun_s:.1f} s: {text}")
        print(f"! {self.faults[-1]}", file=sys.stderr, flush=True)

    def chance(self, name: str) -> random.Random:
        """What one thread draws, the same for the same seed."""
        return random.Random(f"{self.seed} {name}")

    def environment(self) -> dict[str, str]:
        """Of all that runs on the host."""
        return self.host.environment(FAKE_CUDA_UUIDS=",".join(GPUS))

    def advisor(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        command = [sys.executable, "-m", "advisor_cli", *words]
        return subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=COMMAND_S,
            check=False,
        )  # fmt: skip

    def launch(self, launch_id: str) -> LaunchFolder:
        """The folder of a launch."""
        return LaunchFolder(self.host.folder / "home/launches" / launch_id)

    def request(self, what: str, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Ask until there is an answer, as a caller does whose service is restarted; its JSON."""
        text = None if body is None else json.dumps(body).encode()
        key = f"{what}-{time.monotonic_ns()}-{threading.get_ident()}"
        sent = {"Authorization": f"Bearer {self.tokens['admin']}", "Idempotency-Key": key}
        sent |= {"Content-Type": "application/json"} if text else {}
        begun_s, tries = time.monotonic(), 0
        while True:
            tries += 1
            tried_s = time.monotonic()
            with contextlib.suppress(OSError, ValueError):
                answer = ask(self.port, method, path, text, sent)
                if answer.status < 500 or not self.is_away(tried_s, time.monotonic()):
                    break
            if not self.is_away(tried_s, time.monotonic()):
                self.fault(f"no answer to {method} {path}, though nobody touched the service")
            time.sleep(0.2)
        took_s = time.monotonic() - begun_s
        self.asked.append(Asked(what, begun_s, took_s, tries, answer.status))
        # A launch may be over, and a GPU taken, by the time that one is asked about it.
        if answer.status not in (200, 202) and not (
            what in _ABOUT_LAUNCHES and answer.status in (404, 409, 422)
        ):
            self.fault(f"{answer.status} to {method} {path}: {answer.text[:300]}")
        found: dict[str, Any] = json.loads(answer.body or b"{}")
        return {"status": answer.status, **found}

    def is_away(self, begun_s: float, ended_s: float) -> bool:
        """Whether the service was away at any moment between."""
        return any(since < ended_s and until > begun_s for since, until in list(self.away))


class Service:
    """`advisor serve`, restarted as systemd does."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._log = (site.host.folder / "serve.log").open("ab")
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        site, since_s = self._site, time.monotonic()
        site.away.append((since_s, float("inf")))
        words = ("serve", "--port", str(site.port), "--launching", "--requests-per-s", "10000")
        process = subprocess.Popen(
            [sys.executable, "-m", "advisor_cli", *words],
            env=site.environment(), stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        if ":" not in said:
            site.fault(f"the service did not start: {said}")
        site.port = site.port or int(said.rpartition(":")[2])
        ready = wait_until(lambda: _is_ready(site.port), 60)
        if not ready:
            site.fault("the service was not ready within 60 s")
        self._back(since_s)
        return process

    def _back(self, since_s: float) -> None:
        site = self._site
        site.away[-1] = (since_s, time.monotonic())

    def kill(self) -> None:
        """SIGKILL, and the start after it."""
        self._site.away.append((since_s := time.monotonic(), float("inf")))
        self.process.kill()
        self.process.wait()
        time.sleep(RESTART_S)
        self._back(since_s)
        self.process = self._start()

    def stop(self, for_s: float | None) -> None:
        """SIGSTOP for a time; where nobody continues it, the watchdog ends it."""
        self._site.away.append((since_s := time.monotonic(), float("inf")))
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(WATCHDOG_S if for_s is None else for_s)
        self._back(since_s)
        if for_s is None:
            self.kill()
            return
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """SIGTERM, as at the stop of the unit."""
        self.process.terminate()
        if self.process.wait(30):
            self._site.fault(f"the service ended with {self.process.returncode}")


def _is_ready(port: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return ask(port, "GET", "/readyz").status == 200
    return False


def requests(site: Site, name: str) -> None:
    """Mixed requests until it is over: some ten a second."""
    chance, number = site.chance(f"requests {name}"), 0
    kinds: dict[str, tuple[float, Callable[[], object]]] = {
        "advice, warm": (0.4, lambda: _advice(site, chance, "advice, warm")),
        "advice, never asked": (
            0.2,
            lambda: _advice(site, chance, "advice, never asked", max_power_w=_power_w(chance)),
        ),
        "observation": (0.2, lambda: _observe(site, f"{name}-{number}", chance)),
        "launches": (0.1, lambda: site.request("launches", "GET", "/v1/launches?limit=50")),
        "observations": (
            0.1,
            lambda: site.request("observations", "GET", "/v1/observations?limit=20"),
        ),
    }
    weights = [weight for weight, _ in kinds.values()]
    while not site.over.is_set():
        number += 1
        [kind] = chance.choices(list(kinds), weights)
        kinds[kind][1]()
        time.sleep(chance.expovariate(10))


def _power_w(chance: random.Random) -> float:
    """More than any of the pairs draws."""
    return 800 + 300 * chance.random()


def _advice(site: Site, chance: random.Random, what: str, **more: object) -> None:
    jobs = [{"job": job} for job in chance.choice(PAIRS)]
    site.request(what, "POST", "/v1/recommendations", {"jobs": jobs, "min_speed": 0, **more})


def _observe(site: Site, name: str, chance: random.Random) -> None:
    seen = observation(chance.randrange(80_000), launch_id=f"sent-{name}", power_w=_power_w(chance))
    said = site.request("observation", "POST", "/v1/observations", {"observations": [to_row(seen)]})
    if said["status"] == 200:
        assert seen.power_w is not None
        site.posted[seen.launch_id] = seen.power_w


def launches(site: Site, gpu: int) -> None:
    """One launch after the other on a GPU: begun, joined and ended over HTTP or by commands."""
    chance = site.chance(f"launches {gpu}")
    free_s = time.monotonic()
    while not site.over.is_set():
        by_http = chance.random() < 0.5
        jobs = chance.sample(("one", "two", "short", "gemm"), 2)
        launch_id = _begin(site, gpu, jobs, by_http=by_http)
        if launch_id is None:
            if time.monotonic() - free_s > COMMAND_S:
                site.fault(f"nothing could be launched on GPU {gpu} for {COMMAND_S:g} s")
                free_s = time.monotonic()
            time.sleep(1)
            continue
        site.launched.add(launch_id)
        time.sleep(chance.uniform(1, 6))
        if chance.random() < 0.5:
            _join(site, launch_id, by_http=by_http)
        time.sleep(chance.uniform(1, 10))
        _end(site, launch_id, by_http=by_http)
        free_s = time.monotonic()


def _begin(site: Site, gpu: int, jobs: Sequence[str], *, by_http: bool) -> str | None:
    if by_http:
        body = {"jobs": [{"job": job} for job in jobs], "split": "26/50", "gpu": GPUS[gpu]}
        said = site.request("launch", "POST", "/v1/launches", body)
        site.counts[f"launch over HTTP: {said['status']}"] += 1
        return said.get("launch_id")
    done = site.advisor("launch", *jobs, "--split", "26/50", "--gpu", GPUS[gpu], "--detach")
    site.counts[f"advisor launch: exit {done.returncode}"] += 1
    if "Traceback" in done.stderr:
        site.fault(f"advisor launch: {done.stderr[-1000:]}")
    return done.stdout.strip() or None


def _join(site: Site, launch_id: str, *, by_http: bool) -> None:
    if by_http:
        body = {"jobs": [{"job": "third"}], "share_percent": 26}
        said = site.request("join", "POST", f"/v1/launches/{launch_id}/joins", body)
        site.counts[f"join over HTTP: {said['status']}"] += 1
        return
    done = site.advisor("launch", "--join", launch_id, "third", "--share", "26")
    site.counts[f"advisor launch --join: exit {done.returncode}"] += 1
    if "Traceback" in done.stderr:
        site.fault(f"advisor launch --join: {done.stderr[-1000:]}")


def _end(site: Site, launch_id: str, *, by_http: bool) -> None:
    begun_s = time.monotonic()
    if by_http:
        site.request("stop", "DELETE", f"/v1/launches/{launch_id}")
    else:
        done = site.advisor("launches", "stop", launch_id)
        site.counts[f"advisor launches stop: exit {done.returncode}"] += 1
        if "Traceback" in done.stderr:
            site.fault(f"advisor launches stop: {done.stderr[-1000:]}")
    folder = site.launch(launch_id)
    # A stop waits 30 s for a supervisor that is silent; the service may be away for as long.
    if not wait_until(lambda: folder.read_status().over, COMMAND_S):
        site.fault(f"{launch_id} did not end within {COMMAND_S:g} s: {folder.read_status()}")
    status = folder.read_status()
    site.counts[f"launch {status.state} {status.code or ''}".strip()] += 1
    if status.code not in (None, "job", "supervisor-gone"):
        site.counts[f"{status.code}: {(status.cause or '')[:200]}"] += 1
    site.counts["longest stop, ms"] = max(
        site.counts["longest stop, ms"], round(1000 * (time.monotonic() - begun_s))
    )
    if status.code in ("internal", "system"):
        site.fault(f"{launch_id}: {status.code}: {status.cause}")


def alive(pid: int) -> str:
    """The state of a process as /proc has it: R, S, T, Z; empty: there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def with_variable(words: bytes) -> dict[int, str]:
    """Processes that have these bytes in their environment, and their command."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if words in (entry / "environ").read_bytes() and alive(int(entry.name)) != "Z":
                    found[int(entry.name)] = words_of(int(entry.name))
    return found


def words_of(pid: int) -> str:
    """The command of a process; empty: there is none."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    return ""
