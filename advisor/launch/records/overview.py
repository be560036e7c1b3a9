"""All at one look: GPUs, what runs on them, what has ended, and what sharing has saved.

Pure, but for the zone of the host, by whose days is counted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from advisor.core.gpu import Gpu
from advisor.core.objectives import Prices
from advisor.formats.moments import to_text
from advisor.launch.records.answers import Launch
from advisor.launch.records.history import History
from advisor.launch.records.ledger import Ledger, Saved, saved
from advisor.launch.records.status import LaunchStatus

MOST_ENDED = 8
RUNNING_POINTS, ENDED_POINTS = 64, 32
"""Of what is drawn small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardNow:
    """One GPU at one moment.

    Attributes:
        power_w: None: it cannot be read from here.
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
class DrawnLaunch:
    """A launch, and what it did over its time.

    Attributes:
        history: None: it has just begun, or runs on another host.
    """

    launch: Launch
    history: History | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything of one moment.

    Attributes:
        replayed: All of it was recorded earlier, and is played again.
        at: The moment, ISO 8601.
        gpus: Those of this host, and others on which something runs.
        running: Launches that are not over, the newest first.
        ended: The newest of those that are.
        today: Since midnight on the host of the service.
        week: Since Monday.
    """

    replayed: bool = False
    at: str
    gpus: tuple[CardNow, ...]
    running: tuple[DrawnLaunch, ...]
    ended: tuple[DrawnLaunch, ...]
    today: Saved
    week: Saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One launch in the books: when it ran, and what it took; None: that is not known."""

    begun: datetime
    ended: datetime | None
    ledger: Ledger | None


def entry_of(status: LaunchStatus) -> Entry | None:
    """A launch that ran; None: nothing of it ever did."""
    if status.started_at is None or not status.overlap_s:
        return None
    ended = (status.ended_at or status.updated_at) if status.over else None
    return Entry(
        begun=datetime.fromisoformat(status.started_at),
        ended=datetime.fromisoformat(ended) if ended else None,
        ledger=status.ledger,
    )


def midnight(now: datetime, days_back: int = 0) -> datetime:
    """Begin of the day, or of one before it, by the clock that the host shows then."""
    day = now.astimezone().date() - timedelta(days=days_back)
    # Without a zone it is a time of the host's clock, whose offset of that moment is put in: on
    # days on which clocks change it is not that of now.
    return datetime.combine(day, time()).astimezone()


def monday(now: datetime) -> datetime:
    """Begin of its week, likewise."""
    return midnight(now, now.astimezone().weekday())


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What there is to look at.

    Attributes:
        now: The moment.
        running: Launches that are not over, each as it may be shown.
        ended: The newest of those that are.
        entries: Of all launches of the week.
        cards: GPUs of this host, with the power that they draw now.
        host: Its name.
    """

    now: datetime
    running: Sequence[Launch]
    ended: Sequence[Launch]
    entries: Sequence[Entry]
    cards: Sequence[tuple[Gpu, float | None]]
    host: str
    replayed: bool = False


def overview(seen: Seen, history_of: Callable[[str], History | None], prices: Prices) -> Overview:
    """The answer; histories are as coarse as small drawings."""
    return Overview(
        replayed=seen.replayed,
        at=to_text(seen.now),
        gpus=tuple(_cards(seen)),
        running=tuple(
            DrawnLaunch(launch=one, history=_coarse(history_of(one.launch_id), RUNNING_POINTS))
            for one in seen.running
        ),
        ended=tuple(
            DrawnLaunch(launch=one, history=_coarse(history_of(one.launch_id), ENDED_POINTS))
            for one in seen.ended[:MOST_ENDED]
        ),
        today=_since(midnight(seen.now), seen, prices),
        week=_since(monday(seen.now), seen, prices),
    )


def _since(begin: datetime, seen: Seen, prices: Prices) -> Saved:
    return saved(begin.isoformat(), _parts(seen.entries, begin, seen.now), prices)


def _parts(entries: Iterable[Entry], begin: datetime, now: datetime) -> Iterator[Ledger | None]:
    """Of each launch what falls into the time, as if it were spread evenly."""
    for one in entries:
        ended = min(one.ended or now, now)
        inside_s = (ended - max(one.begun, begin)).total_seconds()
        whole_s = (ended - one.begun).total_seconds()
        if inside_s > 0:
            yield one.ledger and one.ledger.part(min(1.0, inside_s / whole_s))


def _cards(seen: Seen) -> Iterator[CardNow]:
    held = {one.gpu_uuid: one for one in seen.running if one.gpu_uuid}
    for gpu, power_w in seen.cards:
        by = held.pop(gpu.uuid, None)
        yield CardNow(
            host=seen.host,
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
            power_limit_w=by.power_limit_w,
            launch_id=by.launch_id,
        )


def _told_w(launch: Launch) -> float | None:
    """What a launch says that its card draws; None: it says nothing, or was not heard of lately."""
    return launch.power_w if launch.silent_s is None else None


def _coarse(history: History | None, most: int) -> History | None:
    return history and history.compact(most)
