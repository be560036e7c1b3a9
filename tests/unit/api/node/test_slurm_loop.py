"""The agent of a Slurm node without a GPU: when it ends, and what it leaves out."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.client import Client
from advisor.errors import SourceError
from advisor.settings import read_settings
from advisor_node import room
from advisor_node.slurm import agent
from advisor_node.slurm.agent import SlurmAgent, run_agent
from advisor_profiling.telemetry import nvml


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "list_gpus", list[Any])


def test_it_ends_when_there_was_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next Prolog starts another one, which reads its settings again."""
    monkeypatch.setattr(room, "LOOK_S", 0.001)
    monkeypatch.setattr(agent, "IDLE_S", 0.01)
    looks, look_at_node, stop = list[SlurmAgent](), SlurmAgent.look, threading.Event()

    def look(one: SlurmAgent) -> None:
        look_at_node(one)
        looks.append(one)  # only where nothing went wrong

    monkeypatch.setattr(SlurmAgent, "look", look)
    with Client("http://127.0.0.1:9") as service:
        run_agent(tmp_path, read_settings({}), service, stop)
    assert looks
    assert not stop.is_set()


def test_a_fault_of_ours_ends_no_agent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the daemons of its node along, and with them the jobs of all."""
    monkeypatch.setattr(room, "LOOK_S", 0.001)

    def look() -> None:
        raise TypeError("a user that is no number")

    looks = room.keep_looking(look, threading.Event())
    next(looks)
    next(looks)
    assert caplog.messages == ["an internal error"] * 2


def no_driver() -> list[Any]:
    raise SourceError("NVML does not answer")


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (list[Any], "there is no GPU 3. the driver counts 0 GPUs"),
        (no_driver, "NVML does not answer"),
    ],
)
def test_a_gpu_that_the_driver_does_not_count_is_left_out(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    listed: Callable[[], list[Any]],
    why: str,
) -> None:
    monkeypatch.setattr(nvml, "list_gpus", listed)
    folder = tmp_path / f"gpu3-{os.geteuid()}/jobs/42"
    folder.mkdir(parents=True)
    (folder / "comment").write_text("advisor:job=gemm")
    (folder / "share").write_text("50")
    with Client("http://127.0.0.1:9") as service:
        one = SlurmAgent(tmp_path, read_settings({}), service)
        for _ in range(3):
            one.look()
    [said] = caplog.messages
    assert f"is left out: {why}" in said
    assert not one.is_busy
