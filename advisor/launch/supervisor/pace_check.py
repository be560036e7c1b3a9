"""Whether a job is as fast as its share lets it be: where it is faster, its limit may be gone."""

from collections.abc import Iterator

from advisor.core.flags import TOO_FAST
from advisor.core.observations import JUDGE_S
from advisor.launch.monitor.set_monitor import SetMonitor
from advisor.launch.records.spec import LaunchPart
from advisor.launch.supervisor.observe import FASTEST, pace_flags


class PaceCheck:
    """Holds jobs against their profiles at their shares; one that is too fast is not proven."""

    def __init__(self) -> None:
        self._told = set[int]()

    def look(self, monitor: SetMonitor) -> Iterator[str]:
        """Judge those that run together now; what is to be said, once of each."""
        stretch = monitor.account.stretches[-1]
        if stretch.settled_s() < JUDGE_S:
            return
        for number, rate in zip(stretch.numbers, stretch.rates(), strict=True):
            one, part = monitor.jobs[number], monitor.pair.parts[number]
            alone = part.share_rate
            one.too_fast = _gains(part) and TOO_FAST in pace_flags([(rate, alone)])
            if one.too_fast and rate and alone and number not in self._told:
                self._told.add(number)
                yield (
                    f"{one.job.job.name} makes {rate / alone:.2g} times the progress that its "
                    f"profile says of {one.job.share} %, alone: it may have changed its limit "
                    "before its first work on the GPU, so that is not proven"
                )


def _gains(part: LaunchPart) -> bool:
    """Whether a job without its limit would be seen by its speed.

    One that waits for its host makes the same progress at any share, and more than its profile
    says on a faster host (1.3 to 1.5 times, docs/measurements/launches.md): that tells nothing.
    """
    whole, share = part.solo_rate, part.share_rate
    return whole is not None and share is not None and whole > FASTEST * share
