"""Answers about launches: histories, lists, plans, and the overview of a host.

Its supervisor keeps it in the launch's folder, so it has no gap where a service was restarted, and
is there when the launch is over. When there are too many points, two and two become one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta

from advisor.core.gpu import Gpu
from advisor.core.objectives import Prices
from advisor.files import read_whole, replace_file
from advisor.formats.moments import to_text
from advisor.launch.folder import LaunchFolder, dumps, loads
from advisor.launch.spec import (
    History,
    JobHistory,
    LaunchStatus,
    Ledger,
    Saved,
    known_mean,
    saved,
)

MOST_POINTS = 127
"""Maximum number of samples; one more triggers pairwise merging."""

_MOST_BYTES = 1 << 20


class HistoryKeeper:
    """Takes in statuses of one set, and keeps what is drawn of them."""

    def __init__(self, started_at: str, step_s: float = 1.0) -> None:
        self.history = History(started_at=started_at, step_s=step_s)
        self._open: list[LaunchStatus] = []

    def add(self, passed_s: float, status: LaunchStatus) -> bool:
        """A status so long after the begin; whether a step was completed by it."""
        self._open.append(status)
        done = len(self.history.power_w) * self.history.step_s
        if passed_s < done + self.history.step_s:
            return False
        # One that was not looked at for a while has no points of that time.
        missed = int((passed_s - done) / self.history.step_s) - 1
        history = _with_step(self.history, self._open, min(missed, MOST_POINTS))
        self.history, self._open = history.thinned(MOST_POINTS), []
        return True


def write_history(folder: LaunchFolder, history: History) -> None:
    """Keep it; on a full disk that of before stays."""
    with suppress(OSError):
        replace_file(folder.path / "history.json", dumps(history), durable=False)


def read_history(folder: LaunchFolder) -> History | None:
    """As far as it is kept; None: it has just begun, or its file is damaged."""
    with suppress(OSError, ValueError):
        return loads(History, read_whole(folder.path / "history.json", _MOST_BYTES))
    return None


def _with_step(history: History, seen: Sequence[LaunchStatus], missed: int) -> History:
    gap = (None,) * missed
    before = len(history.power_w)
    jobs = dict(enumerate(history.jobs))
    for n, job in enumerate(seen[-1].jobs):
        known = jobs.get(n) or JobHistory(
            job=job.job, speeds=(None,) * before, p99_ms=(None,) * before
        )
        of = [status.jobs[n] for status in seen if n < len(status.jobs)]
        jobs[n] = replace(
            known,
            speeds=(*known.speeds, *gap, known_mean([one.relative_speed for one in of])),
            p99_ms=(*known.p99_ms, *gap, known_mean([one.latency_p99_ms for one in of])),
        )
    return replace(
        history,
        power_w=(*history.power_w, *gap, known_mean([one.power_w for one in seen])),
        energy_saved=(*history.energy_saved, *gap, known_mean([one.energy_saved for one in seen])),
        jobs=tuple(jobs.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchList:
    """The newest first."""

    launches: tuple[LaunchStatus, ...]


MOST_ENDED = 8
# Of what is drawn small.
_RUNNING_POINTS, _ENDED_POINTS = 64, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CardNow:
    """One GPU at one moment.

    Attributes:
        power_w: Of each GPU of a launch the mean of them; None: it cannot be read from here.
        launch_id: Of the launch that holds it; None: none does.
    """

    host: str
    gpu_uuid: str
    gpu_model: str | None
    units_total: int | None
    power_w: float | None
    power_limit_w: float | None
    launch_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything of one moment.

    Attributes:
        replayed: All of it was recorded earlier, and is played again.
        at: The moment, ISO 8601.
        gpus: Those of this host, and others on which something runs.
        running: Launches that are not over, the newest first, with their history.
        ended: The newest ended launches, likewise.
        today: Since midnight on the host of the service.
        week: Since Monday.
    """

    replayed: bool = False
    at: str
    gpus: tuple[CardNow, ...]
    running: tuple[LaunchStatus, ...]
    ended: tuple[LaunchStatus, ...]
    today: Saved
    week: Saved


def midnight(now: datetime, days_back: int = 0) -> datetime:
    """Begin of the day, or of one before it, by the clock that the host shows then."""
    day = now.astimezone().date() - timedelta(days=days_back)
    # Without a zone it is a time of the host's clock, whose offset of that moment is put in: on
    # days on which clocks change it is not that of now.
    return datetime.combine(day, time()).astimezone()


def overview(
    *,
    now: datetime,
    running: Sequence[LaunchStatus],
    ended: Sequence[LaunchStatus],
    entries: Sequence[LaunchStatus],
    cards: Sequence[tuple[Gpu, float | None]],
    host: str,
    history_of: Callable[[str], History | None],
    prices: Prices,
    replayed: bool = False,
) -> Overview:
    """The answer; histories are as coarse as small drawings.

    Args:
        now: The moment.
        running: Launches that are not over, each as it may be shown.
        ended: The newest of those that are.
        entries: All launches of the week.
        cards: GPUs of this host, with the power that they draw now.
        host: Its name.
        history_of: By the name of a launch; None: there is none.
        prices: Of the settings.
        replayed: All of it was recorded earlier.
    """

    def drawn(launches: Iterable[LaunchStatus], most: int) -> tuple[LaunchStatus, ...]:
        known = ((one, history_of(one.launch_id)) for one in launches)
        return tuple(
            replace(one, history=history and history.compact(most)) for one, history in known
        )

    def since(begin: datetime) -> Saved:
        return saved(begin.isoformat(), _parts(entries, begin, now), prices)

    return Overview(
        replayed=replayed,
        at=to_text(now),
        gpus=tuple(_cards(cards, host, running)),
        running=drawn(running, _RUNNING_POINTS),
        ended=drawn(ended[:MOST_ENDED], _ENDED_POINTS),
        today=since(midnight(now)),
        week=since(midnight(now, now.astimezone().weekday())),
    )


def _parts(
    entries: Iterable[LaunchStatus], begin: datetime, now: datetime
) -> Iterator[Ledger | None]:
    """Of each launch what falls into the time, as if it were spread evenly."""
    for one in entries:
        if ran := one.ran(now):
            begun, ended = ran
            inside_s = (ended - max(begun, begin)).total_seconds()
            whole_s = (ended - begun).total_seconds()
            if inside_s > 0:
                yield one.ledger and one.ledger.part(min(1.0, inside_s / whole_s))


def _cards(
    cards: Iterable[tuple[Gpu, float | None]], here: str, running: Iterable[LaunchStatus]
) -> Iterator[CardNow]:
    held = {uuid: one for one in running for uuid in one.gpus}
    for gpu, power_w in cards:
        by = held.pop(gpu.uuid, None)
        yield CardNow(
            host=here,
            gpu_uuid=gpu.uuid,
            gpu_model=gpu.model,
            units_total=gpu.units_total or (by and by.units_total),
            power_w=power_w if by is None or _told_w(by) is None else _told_w(by),
            power_limit_w=gpu.power_limit_w,
            launch_id=by and by.launch_id,
        )
    for uuid, by in sorted(held.items(), key=lambda item: (item[1].host, item[0])):
        yield CardNow(
            host=by.host,
            gpu_uuid=uuid,
            gpu_model=by.gpu_model,
            units_total=by.units_total,
            power_w=_told_w(by),
            power_limit_w=by.power_limit_w and by.power_limit_w / len(by.gpus),
            launch_id=by.launch_id,
        )


def _told_w(launch: LaunchStatus) -> float | None:
    """What a launch says that a card draws; None: it says nothing, or was not heard of lately."""
    if launch.power_w is None or launch.silent_s is not None:
        return None
    return launch.power_w / len(launch.gpus)
