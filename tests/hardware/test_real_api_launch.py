"""Launches over HTTP on a real NVIDIA GPU: run with `make gpu`. No setting of the GPU is changed.

The jobs need PyTorch in the Python that `python3` starts.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from launch_server import LaunchServer
from real_gpu import GPU, SAFE_SPLIT, nobody_computes

from advisor.core.gpu import units_for_percent
from advisor.formats.rows import flat
from advisor_data.state import open_service_state

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]

PAIR = {"jobs": [{"job": "triad"}, {"job": "gemm"}], "gpu": GPU, "min_speed": 0}


class Service:
    """`advisor serve` with a home of its own, which can be killed and started again."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self._environment = {**os.environ, "ADVISOR_HOME": str(home)}
        with open_service_state(None, home) as state:
            tokens = {"launch": state.make_token("launch", ("read", "launch"))[1]}
        self._tokens = tokens
        self.server = self.start()

    def start(self) -> LaunchServer:
        command = [sys.executable, "-m", "advisor_cli", "serve", "--port", "0", "--launching"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self._environment
        )
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert found
        self.server = LaunchServer(cast("Any", process), int(found[1]), self._tokens)
        return self.server

    def kill(self) -> None:
        self.server.process.kill()
        self.server.process.communicate()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "home")
    try:
        yield service
    finally:
        # A launch that a failed test left, stopped in the safe order.
        for one in service.server.ask("GET", "/v1/launches?active=true").json["launches"]:
            service.server.stop_launch(one["launch_id"])
        service.kill()


def test_recommended_pair_is_launched_over_http(service: Service) -> None:
    """Granted SMs are the share's, proven, and what is observed stands next to the forecast."""
    reply = service.server.ask("POST", "/v1/launches", {**PAIR, "duration_s": 15}, "launch")
    assert reply.status == 202, reply.text
    launch_id = reply.json["launch_id"]
    status = service.server.await_state(launch_id, "running", "failed")
    assert status["state"] == "running", status
    for job in status["jobs"]:
        assert job["proven"]
        assert job["units_granted"] == units_for_percent(job["share_percent"], 132)
    last = service.server.await_state(launch_id, "stopped", "failed")
    print(json.dumps(last, indent=1))
    assert (last["state"], last["code"]) == ("stopped", None)
    (row,) = service.server.ask("GET", "/v1/observations?job=triad").json["observations"]
    seen = flat(row)
    for quantity in ("rate_1", "rate_2", "power_w", "work_per_joule"):
        ratio = seen[quantity] / seen[f"predicted_{quantity}"]
        print(f"{quantity}: {ratio:.3f} of the prediction")
    assert nobody_computes()


def test_launch_goes_on_while_the_service_is_killed(service: Service) -> None:
    """Kill -9 of the server in the middle: the jobs run on, and the next server stops them."""
    launch_id = service.server.launched("triad", "gemm", split=SAFE_SPLIT, gpu=GPU)
    before = service.server.await_status(launch_id, lambda s: s["state"] == "running")
    service.kill()
    time.sleep(3)
    later = service.start().await_status(
        launch_id, lambda s: s["jobs"][0]["steps"] > before["jobs"][0]["steps"]
    )
    assert later["supervisor_pid"] == before["supervisor_pid"]
    assert service.server.stop_launch(launch_id)["state"] == "stopped"
    service.server.process.send_signal(signal.SIGTERM)
    service.server.process.communicate(timeout=30)
    assert service.server.process.returncode == 0
    service.start()
