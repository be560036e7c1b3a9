"""Whether anybody else computes on a GPU."""

import itertools
from collections.abc import Iterable

import pytest

from advisor.core.gpu import Gpu
from advisor.errors import BusyError
from advisor_profiling.testbed import live

GPU = Gpu(vendor="nvidia", index=0, uuid="GPU-1", model="NVIDIA H100", units_total=132)


def seen(looks: Iterable[list[int]], patch: pytest.MonkeyPatch) -> None:
    """NVML names these processes, look by look."""
    turns = iter(looks)

    def compute_pids(_: str) -> list[int]:
        return next(turns)

    def name_of(_: int) -> str:
        return "python3"

    patch.setattr(live.nvml, "compute_pids", compute_pids)
    patch.setattr(live, "name_of", name_of)
    patch.setattr(live, "_PASSING_S", 0)
    patch.setattr(live, "_ALONE_S", 0.1)


def test_processes_that_only_pass_are_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that start on other GPUs of the host show on this one while their driver starts."""
    seen(([pid] for pid in itertools.count(1)), monkeypatch)
    live.check_alone(GPU)


def test_a_process_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where others pass by."""
    seen(([7, pid] for pid in itertools.count(8)), monkeypatch)
    with pytest.raises(BusyError, match=r"processes \[7, \d+\] use GPU GPU-1"):
        live.check_alone(GPU)


def test_a_process_that_leaves_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within five seconds."""
    seen(itertools.chain([[7]] * 5, itertools.repeat([])), monkeypatch)
    live.check_alone(GPU)
