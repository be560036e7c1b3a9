"""A replay whose processes break where a test says, and that remembers what they did."""

from collections.abc import Callable, Sequence

from advisor.core.gpu import Share
from advisor.core.job import Job
from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import AdvisorError
from advisor_profiling.testbed.replay import ReplayProcess, ReplayTestbed
from advisor_profiling.testbed.testbed import WarmProcess

Fault = Callable[["BreakableProcess", str], AdvisorError | None]


class BreakableProcess(ReplayProcess):
    """A process that asks the test at each step whether it breaks; a broken one stays so."""

    ended = False
    broken: AdvisorError | None = None
    slots: tuple[int, ...] = ()

    def check(self) -> None:
        self._ask("check")

    def check_limit(self) -> None:
        self._ask("check_limit")

    def ready(self) -> bool:
        self._ask("ready")
        return True

    def go(self, slot: int = 0) -> None:
        assert not self.ended
        self.slots += (slot,)
        self._home.standing.append(sum(not process.ended for process in self._home.processes))
        super().go(slot)

    def hold(self) -> None:
        self._ask("hold")
        super().hold()

    def stop(self) -> None:
        self.ended = True
        super().stop()

    @property
    def _home(self) -> "BreakableTestbed":
        assert isinstance(self._testbed, BreakableTestbed)
        return self._testbed

    def _ask(self, where: str) -> None:
        self.broken = self.broken or self._home.ask(self, where)
        if self.broken:
            raise self.broken


class BreakableTestbed(ReplayTestbed):
    """A replay whose processes break as a test says.

    Attributes:
        processes: All that were started.
        standing: How many of them had not ended each time that one was let go.
        alive: Whether what enforces the shares is there.
    """

    def __init__(
        self,
        solo: Sequence[SoloPoint],
        pairs: Sequence[PairPoint] = (),
        fault: Fault = lambda _process, _where: None,
    ) -> None:
        super().__init__(solo, pairs)
        self.ask = fault
        self.processes: list[BreakableProcess] = []
        self.standing: list[int] = []
        self.alive: Callable[[], None] = lambda: None

    def start(self, job: Job, share: Share) -> WarmProcess:
        process = super().start(job, share)
        self.processes.append(BreakableProcess(job, share, self, process.granted))
        return self.processes[-1]

    def check_alive(self) -> None:
        self.alive()

    def playing(self) -> list[BreakableProcess]:
        """Processes that run now."""
        return [process for process in self.processes if process in self._playing]
