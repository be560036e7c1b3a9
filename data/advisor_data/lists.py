"""Lists of records: pages, the newest first, and one row for each profile."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Self

from advisor.core.gpu import WHOLE
from advisor.core.records import Record, SoloPoint, grouped
from advisor.formats.rows import P
from advisor.validity.points import newest_program, with_solo_flags
from advisor.wire.answers import JobRow, PointsOrigin

MOST_OF_MOMENT = 1000
"""Records that a page has beyond its limit, so that those of one moment stay together."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a record stands in a list: by its moment, and by its identity within that.

    Attributes:
        started_at_us: Microseconds since 1970.
    """

    started_at_us: int
    point_id: str

    def __str__(self) -> str:
        return f"{self.started_at_us}.{self.point_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """As `str` wrote it.

        Raises:
            ValueError: it did not.
        """
        moment, _, point_id = text.partition(".")
        return cls(int(moment), point_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which records of a list a page may have.

    Attributes:
        limit: So many, and those that started with the last of them.
        before_us: Only those that started before this moment, microseconds since 1970.
        after: Only those behind this position: where the page before ended.
    """

    limit: int
    gpu_model: str | None = None
    before_us: int | None = None
    after: Position | None = None

    def has(self, record: Record) -> bool:
        """Whether a page may have the record, `limit` apart."""
        where = position(record)
        return (
            self.gpu_model in (None, record.gpu_model)
            and (self.before_us is None or where.started_at_us < self.before_us)
            and (self.after is None or where < self.after)
        )


@dataclass(frozen=True, slots=True)
class Page(Generic[P]):
    """Records, the newest first, and where they end; None: there are no more."""

    records: list[P]
    end: Position | None


def us_of(moment: datetime) -> int:
    """Microseconds since 1970 of a moment; one without a zone is in UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def position(record: Record) -> Position:
    """Where a record stands."""
    return Position(us_of(datetime.fromisoformat(record.started_at)), record.point_id)


def page_of(records: Iterable[P], span: Span) -> Page[P]:
    """A page of records that are all here."""
    return cut(sorted(filter(span.has, records), key=position, reverse=True), span)


def cut(records: Iterable[P], span: Span) -> Page[P]:
    """The first records of a list, the newest first, with all of the last one's moment.

    No more is read of the list than shows that it goes on.
    """
    taken: list[P] = []
    for record in records:
        if len(taken) >= span.limit:
            last, most = position(taken[-1]), span.limit + MOST_OF_MOMENT
            if position(record).started_at_us != last.started_at_us or len(taken) == most:
                return Page(taken, last)
        taken.append(record)
    return Page(taken, None)


LAST_NAME = "\U0010ffff"
"""Behind the names of all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """The points of a job on a GPU model, in one row.

    Attributes:
        shares: Measured, percent, ascending.
        measured_at: When the last one started, ISO 8601.
        flags: Of any of them, sorted.
        rate_units: Of any that are stored, sorted; one, unless they were measured long apart.
    """

    job: str
    gpu_model: str
    shares: tuple[float, ...]
    points: int
    measured_at: str
    flags: tuple[str, ...]
    rate_units: tuple[str, ...]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The row of its JSON document."""
        lists: Any = {name: tuple(document[name]) for name in ("shares", "flags", "rate_units")}
        return cls(**{**document, **lists})

    @property
    def whole(self) -> bool:
        """Whether the whole GPU and another share were measured, as predictions need."""
        return WHOLE in self.shares and len(self.shares) > 1


def profile_rows(points: Iterable[SoloPoint]) -> list[ProfileRow]:
    """One row for each job on each GPU model, in their order: of its `newest_program`."""
    groups = grouped(with_solo_flags(points), lambda point: (point.job, point.gpu_model))
    return [
        ProfileRow(
            job=job,
            gpu_model=gpu_model,
            shares=tuple(sorted({p.share_percent for p in group})),
            points=len(group),
            measured_at=max(p.started_at for p in group),
            flags=tuple(sorted({flag for p in group for flag in p.flags})),
            rate_units=tuple(sorted({p.rate_unit for p in of_all})),
        )
        for (job, gpu_model), of_all in sorted(groups.items())
        for group in [newest_program(of_all)]
    ]


def job_rows(
    defined: Collection[str], stored: Sequence[ProfileRow], bundled: Sequence[ProfileRow] = ()
) -> tuple[JobRow, ...]:
    """One row for each job on each GPU model, by name; jobs without a profile have no model.

    A bundled profile stands where a job has none of its own: that is what is used then.
    """
    profiled = {row.job for row in stored if row.whole}
    rows = [_measured(row, "stored", defined) for row in stored]
    rows += [_measured(row, "bundled", defined) for row in bundled if row.job not in profiled]
    rows += [JobRow(job=name, launchable=True) for name in set(defined) - {row.job for row in rows}]
    return tuple(sorted(rows, key=lambda row: (row.job, row.gpu_model or "")))


def _measured(row: ProfileRow, source: PointsOrigin, defined: Collection[str]) -> JobRow:
    same = {f.name: getattr(row, f.name) for f in fields(row) if f.name != "rate_units"}
    return JobRow(**same, source=source, launchable=row.job in defined)
