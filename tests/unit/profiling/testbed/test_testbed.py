"""A process of a live GPU: on which cores it is when."""

from types import SimpleNamespace
from typing import Any, cast

from advisor.core.gpu import Share
from advisor.runtime.backend import Granted
from advisor.runtime.processes import plan_cores
from advisor_profiling.testbed.live import LiveProcess


class Job:
    """A running job that writes down what is asked of it."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.share, self.granted = Share(50), Granted(66, mps=True)
        self.is_ready = False
        self.count = self.check = self.check_limit = self.leave = self.stop = lambda: None
        self.reported = self.latencies = lambda: None

    def ready(self) -> bool:
        return self.is_ready

    def pin(self, cores: frozenset[int]) -> None:
        self.log.append(cores)

    def go(self) -> None:
        self.log.append("go")

    def hold(self) -> None:
        self.log.append("hold")


def test_waiting_clients_stay_off_the_cores_of_measured_jobs() -> None:
    """From the moment that a process is ready, and again after its window."""
    cores = plan_cores([frozenset([core]) for core in range(8)])
    job = Job()
    process = LiveProcess(cast("Any", job), cast("Any", SimpleNamespace(cores=cores)))
    assert not process.ready()
    assert job.log == []
    job.is_ready = True
    assert process.ready()
    process.go(1)
    process.hold()
    assert job.log == [cores.waiting, cores.slots[1], "go", "hold", cores.waiting]
