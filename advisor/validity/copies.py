"""Copies of one window: a card measures one thing at a time, so two that differ are not both true.

Who may write can send a window again that somebody else measured, under a name of his own.
"""

from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import TypeVar

from advisor.core.observations import Observation, Part, Record
from advisor.core.records import SoloPoint
from advisor.formats.moments import is_utc

_R = TypeVar("_R", bound=Record)


def undisputed(records: Iterable[_R]) -> list[_R]:
    """The records, in their order, but for windows of which there are unlike copies.

    Nobody can say which of two is the true one.
    """
    known = list(records)
    told_of: dict[Hashable, Hashable] = {}
    windows = [window_of(record) for record in known]
    disputed = {
        window
        for window, record in zip(windows, known, strict=True)
        if told_of.setdefault(window, told(record)) != told(record)
    }
    return [r for window, r in zip(windows, known, strict=True) if window not in disputed]


def window_of(record: Record) -> Hashable:
    """What was measured, where and when: the same of all copies of a window."""
    what = tuple((part.job, part.share_percent) for part in _parts(record))
    moment = record.started_at
    # The same moment may be written with Z or +00:00.
    when = datetime.fromisoformat(moment) if is_utc(moment) else moment
    return what, record.mode, record.gpu_uuid, when


def told(record: Record) -> Hashable:
    """What a window is said to have shown."""
    length_s = record.overlap_s if isinstance(record, Observation) else record.window_s
    return tuple(part.rate for part in _parts(record)), record.power_w, length_s


def _parts(record: Record) -> Iterable[SoloPoint | Part]:
    return (record,) if isinstance(record, SoloPoint) else record.parts
