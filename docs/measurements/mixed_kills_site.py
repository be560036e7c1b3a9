"""The host of `mixed_kills.py`: two fake GPUs, a service that is restarted, what was asked."""

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
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from host import OTHER_UUID, UUID, FakeHost
from raw_server import ask

from advisor.launch.folder import LaunchFolder
from advisor.runtime.processes import wait_until

GPUS = (UUID, OTHER_UUID)
RESTART_S, WATCHDOG_S = 2.0, 30.0
"""As in deploy/advisor.service: `RestartSec`, and `WatchdogSec` for a service that stands still."""

COMMAND_S = 150.0
"""How long one command may take; the guard needs 30 s, a stop as long again."""

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
    longest_s: dict[str, float] = field(default_factory=dict[str, float])

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

    def note(self, what: str, for_s: float) -> None:
        """Something took so long; the longest is told."""
        self.longest_s[what] = max(for_s, self.longest_s.get(what, 0.0))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of advisor, to its end."""
        command = [sys.executable, "-m", "advisor_cli", *words]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=COMMAND_S,
            check=False,
        )  # fmt: skip
        what = [word for word in words[:2] if word in ("launch", "--join", "launches", "stop")]
        self.counts[f"advisor {' '.join(what)}: exit {done.returncode}"] += 1
        if "Traceback" in done.stderr:
            self.fault(f"advisor {' '.join(words)}: {done.stderr[-1000:]}")
        return done

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
            with contextlib.suppress(OSError, ValueError, HTTPException):
                answer = ask(self.port, method, path, text, sent)
                if answer.status < 500 or not self.is_away(tried_s, time.monotonic()):
                    break
            if not self.is_away(tried_s, time.monotonic()):
                self.fault(f"no answer to {method} {path}, though nobody touched the service")
            time.sleep(0.2)
        took_s = time.monotonic() - begun_s
        self.asked.append(Asked(what, begun_s, took_s, tries, answer.status))
        if what in _ABOUT_LAUNCHES:
            self.counts[f"{what} over HTTP: {answer.status}"] += 1
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
    with contextlib.suppress(OSError, ValueError, HTTPException):
        return ask(port, "GET", "/readyz").status == 200
    return False


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
