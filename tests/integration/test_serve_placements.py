"""Placements that take long: one that is killed, and what is left of one when the service ends."""

import json
import os
import signal
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from raw_server import JSON, Answer, RawServer, raw_server, raw_server_with

from advisor.runtime.processes import cpu_s, descendants, is_stopped, wait_until

NAMES = ("fft", "gemm", "triad", "walsh")
LONG = {"jobs": [{"job": job, "count": 20_000, "work_s": 60.0} for job in NAMES]}
SHORT = {"jobs": [{"job": "fft", "count": 2}]}


@pytest.mark.slow
def test_placements_go_on_where_somebody_stops_their_process(tmp_path: Path) -> None:
    """While it waits and while it works: whoever asked would wait for ever, and all who follow."""
    with raw_server(tmp_path / "home") as served, ThreadPoolExecutor() as pool:
        assert _place(served, SHORT).status == 200
        [pid] = descendants(served.process.pid)
        os.kill(pid, signal.SIGSTOP)
        asked, _ = _long(served, pool)
        os.kill(pid, signal.SIGSTOP)
        assert wait_until(lambda: not is_stopped(pid), 60)
        assert not asked.done()
        os.kill(pid, signal.SIGKILL)
        assert asked.result(30).code == "process-ended"


@pytest.mark.slow
def test_no_placement_outlives_a_service_that_is_stopped(tmp_path: Path) -> None:
    # It goes on with the placement, in vain, for as long as requests may end in.
    with raw_server_with(tmp_path / "home", drain_s=1) as served, ThreadPoolExecutor() as pool:
        asked, pid = _long(served, pool)
        os.kill(served.process.pid, signal.SIGTERM)
        assert wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30)
        assert asked.exception(30) or asked.result().status in (200, 503)


def _long(served: RawServer, pool: ThreadPoolExecutor) -> tuple[Future[Answer], int]:
    """A placement that is worked out, and the process that does."""
    asked = pool.submit(_place, served, LONG)

    def at_work() -> list[int]:
        # Starting takes most of a second of CPU time; what comes after it is the work.
        return [pid for pid in descendants(served.process.pid) if cpu_s([pid]) > 1.5]

    # It gives way to whatever else the machine does.
    assert wait_until(lambda: asked.done() or bool(at_work()), 240)
    assert not asked.done(), "it was placed before it could be looked at"
    return asked, at_work()[0]


def _place(served: RawServer, queue: Mapping[str, object]) -> Answer:
    return served.ask("POST", "/v1/placements", json.dumps({**queue, "gpus": 100}).encode(), JSON)
