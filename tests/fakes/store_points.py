"""Points for tests: one by hand, and any that can exist."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flat_records import from_flat
from hypothesis import strategies as st

from advisor.core.records import (
    OBSERVATION_WORDS,
    Observation,
    ObservedPart,
    PairPoint,
    Part,
    PointPart,
    Record,
    SoloPoint,
)
from advisor.formats.rows import column_types

FILES = Path(__file__).parents[1] / "fixtures/points"
"""Measured points and observed launches, each kind in each format."""


def point(number: int = 0, **fields: Any) -> SoloPoint:
    """A solo point; each number is another measurement of one run."""
    values: dict[str, Any] = {
        "job": "gemm",
        "share_percent": 50.0,
        "rate": 100.0 + number,
        **_window(number),
    }
    return SoloPoint(**{**values, **fields})


def pair_point(number: int = 0, **fields: Any) -> PairPoint:
    """A pair point; each number is another measurement of one run."""
    values: dict[str, Any] = {
        "job_1": "gemm",
        "job_2": "sort",
        "share_1_percent": 30.0,
        "share_2_percent": 70.0,
        "rate_1": 100.0 + number,
        "rate_2": 7.5,
        **_window(number),
    }
    return from_flat(PairPoint, **{**values, **fields})


def observation(number: int = 0, **fields: Any) -> Observation:
    """What a launched pair did; each number is another launch."""
    values: dict[str, Any] = {
        "launch_id": f"20260131-120000-{number:06}",
        "job_1": "gemm",
        "job_2": "sort",
        "gpu_model": "NVIDIA H200",
        "gpu_uuid": "GPU-1",
        "share_1_percent": 30.0,
        "share_2_percent": 70.0,
        "rate_1": 100.0 + number,
        "overlap_s": 60.0,
        "state": "finished",
        "started_at": _moment(number),
    }
    return from_flat(Observation, **{**values, **fields})


def _window(number: int) -> dict[str, Any]:
    return {
        "gpu_model": "NVIDIA H200",
        "gpu_uuid": "GPU-1",
        "window_s": 5.0,
        "started_at": _moment(number),
        "run": "r1",
    }


def _moment(number: int) -> str:
    return f"2026-01-31T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"


_WORDS = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=12)
_CENTURY = datetime(2000, 1, 1), datetime(2026, 1, 1)
_MOMENTS = st.datetimes(*_CENTURY, timezones=st.just(UTC)).map(lambda moment: moment.isoformat())
_SHARES = st.floats(0, 100, exclude_min=True)
_VERDICTS = st.none() | st.sampled_from(["right", "wrong", "differ"])
_VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: _WORDS,
    float: st.floats(0, allow_infinity=False),
    int: st.integers(0, 2**31 - 1),
    bool: st.booleans(),
    tuple: st.lists(_WORDS.filter(lambda word: ";" not in word), max_size=3).map(tuple),
}


def _columns(kind: type[Record] | type[Part], **special: st.SearchStrategy[Any]) -> dict[str, Any]:
    known = column_types(kind)
    lengths = dict.fromkeys(("window_s", "overlap_s"), st.floats(1e-3, 3e7))
    plain = {"started_at": _MOMENTS, "share_percent": _SHARES, "results": _VERDICTS}
    return {
        name: st.none() | _VALUES[value_type] if optional else _VALUES[value_type]
        for name, (value_type, optional) in known.items()
    } | {name: values for name, values in {**plain, **lengths, **special}.items() if name in known}


def _parts(kind: type[Part]) -> st.SearchStrategy[Any]:
    return st.lists(st.builds(kind, **_columns(kind)), min_size=2, max_size=4).map(tuple)


any_point: st.SearchStrategy[SoloPoint] = st.builds(SoloPoint, **_columns(SoloPoint))
any_pair_point: st.SearchStrategy[PairPoint] = st.builds(
    PairPoint, parts=_parts(PointPart), **_columns(PairPoint)
)
any_observation: st.SearchStrategy[Observation] = st.builds(
    Observation,
    parts=_parts(ObservedPart),
    **_columns(
        Observation,
        **{name: st.sampled_from(words) for name, words in OBSERVATION_WORDS.items()},
    ),
)
