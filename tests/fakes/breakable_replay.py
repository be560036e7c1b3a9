"""A replay whose processes break where a test says, and that remembers what they did."""

from collections.abc import Callable, Sequence

from advisor.core.gpu import Share
from advisor.core.job import Job
from advisor.core.records import PairPoint, SoloPoint
from advisor_profiling.testbed import ReplayProcess, ReplayTestbed

Fault = Callable[["BreakableProcess", str], BaseException | None]


class BreakableProcess(ReplayProcess):
    """A process that asks the test at each step whether it breaks; a broken one stays so."""

    ended = False
    broken: BaseException | None = None
    slots: tuple[int, ...] = ()

    def check(self) -> None:
        self._ask("check")

    def check_limit(self) -> None:
        self._ask("check_limit")

    def ready(self) -> bool:
        self._ask("ready")
        return self._home.clock.now_s() >= self._home.ready_after_s

    def go(self, slot: int = 0) -> None:
        assert not self.ended
        self.slots += (slot,)
        self._home.standing.append(sum(not process.ended for process in self._home.processes))
        super().go(slot)

    def hold(self) -> None:
        self._ask("hold")
        super().hold()

    def leave(self) -> None:
        self.note("leave")

    def stop(self) -> None:
        self.ended = True
        self.note("stop")
        super().stop()

    def note(self, where: str, *, stays: bool = False) -> None:
        """Remember the step, and break if that is the test's wish for it."""
        self._home.log.append(f"{where} {self.job.name} at {self.share} %")
        if error := self._home.fault(self, where):
            self.broken = error if stays else self.broken
            raise error

    @property
    def _home(self) -> "BreakableTestbed":
        assert isinstance(self._testbed, BreakableTestbed)
        return self._testbed

    def _ask(self, where: str) -> None:
        if self.broken:
            raise self.broken
        self.note(where, stays=True)


class BreakableTestbed(ReplayTestbed):
    """A replay whose processes break as a test says.

    Attributes:
        processes: All that were started.
        standing: How many of them had not ended each time that one was let go.
        log: What each was told, in order, such as "start gemm at 30 %".
        alive: Whether what enforces the shares is there.
        ready_after_s: Time at which processes are ready.
    """

    def __init__(
        self,
        solo: Sequence[SoloPoint],
        pairs: Sequence[PairPoint] = (),
        fault: Fault = lambda _process, _where: None,
    ) -> None:
        super().__init__(solo, pairs)
        self.fault = fault
        self.log: list[str] = []
        self.ready_after_s = 0.0
        self.processes: list[BreakableProcess] = []
        self.standing: list[int] = []
        self.alive: Callable[[], None] = lambda: None

    def prove(self, job: Job, share: Share) -> Callable[[], ReplayProcess]:
        self.log.append(f"prove {job.name} at {share} %")
        return super().prove(job, share)

    def start(self, job: Job, share: Share) -> ReplayProcess:
        process = BreakableProcess(job, share, self, super().start(job, share).granted)
        process.note("start")
        self.processes.append(process)
        return process

    def check_alive(self) -> None:
        self.alive()

    def playing(self) -> list[BreakableProcess]:
        return [process for process in self.processes if process in self._playing]
