"""What a recorder writes: changes only, no zeros, not without end, and all of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_sensor import HEADER

from advisor.errors import SourceError
from advisor_power.sensor.polled import ChangedReadings, record
from advisor_power.sensor.trace import begin_trace, read_trace

values = st.lists(st.sampled_from([None, 80.0, 81.0, 500.0]), max_size=40)


@given(read=values)
def test_changes_are_written_and_nothing_else(read: list[float | None]) -> None:
    changes = ChangedReadings()
    lines = [line for t, value in enumerate(read) for line in changes.lines("a", t, value, 7)]
    shown = [value for value in read if value is not None]
    kept = [v for i, v in enumerate(shown) if i == 0 or v != shown[i - 1]]
    assert [line[3] for line in lines] == kept
    assert all(line[:2] == ["reading", "a"] and line[4] == 7 for line in lines)


@given(most=st.integers(0, 20), count=st.integers(0, 40))
def test_recording_is_bounded(most: int, count: int) -> None:
    """A channel that flickers fills no disk; the file says that it is full."""
    changes = ChangedReadings(most)
    lines = [line for t in range(count) for line in changes.lines("a", t, 1.0 + t % 2)]
    assert len(lines) == min(count, most + 1)
    assert [line[0] for line in lines].count("full") == (count > most)


def test_channels_do_not_hide_each_other() -> None:
    changes = ChangedReadings()
    assert changes.lines("a", 1.0, 80.0)
    assert changes.lines("b", 1.0, 80.0)
    assert not changes.lines("a", 2.0, 80.0)


def test_readings_before_an_error_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    begin_trace(file, HEADER)
    changes, read = ChangedReadings(), iter([80.0, 500.0])

    def poll(time_s: float) -> list[list[Any]]:
        try:
            return changes.lines("instant", time_s, next(read))
        except StopIteration:
            raise SourceError("lost") from None

    with pytest.raises(SourceError, match="lost"):
        record(poll, 0.0, file, lambda: False)
    assert read_trace(file).series["instant"].values.tolist() == [80, 500]


def test_recording_is_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    begin_trace(file, HEADER)
    with pytest.raises(FileExistsError):
        begin_trace(file, HEADER)
    assert json.loads(file.read_text())["gpu_uuid"] == HEADER.gpu_uuid
