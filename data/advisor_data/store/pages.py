"""Long lists of records piece by piece: the newest first, each page where the last one ended."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, Self

from advisor.core.records import Record
from advisor.formats.rows import P

MOST_OF_MOMENT = 1000
"""Records that a page has beyond its limit, so that those of one moment stay together."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


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
    return (moment - _EPOCH) // _US


def position(record: Record) -> Position:
    """Where a record stands."""
    return Position(us_of(datetime.fromisoformat(record.started_at)), record.point_id)


def page_of(records: Iterable[P], span: Span) -> Page[P]:
    """A page of records that are all here."""
    return cut(sorted(filter(span.has, records), key=position, reverse=True), span)


def cut(found: list[P], span: Span) -> Page[P]:
    """The first records of a list, the newest first, with all of the last one's moment.

    The list has all there are, or more than the page can have.
    """
    taken = found[: span.limit]
    if taken:
        last_us = position(taken[-1]).started_at_us
        more = found[span.limit : span.limit + MOST_OF_MOMENT]
        taken += itertools.takewhile(lambda r: position(r).started_at_us == last_us, more)
    return Page(taken, position(taken[-1]) if len(taken) < len(found) else None)
