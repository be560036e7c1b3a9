"""Points for tests: one by hand, and any that can exist."""

from datetime import UTC
from typing import Any

from hypothesis import strategies as st

from advisor.records import PairPoint, Point, SoloPoint
from advisor.rows import column_types


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
        "job_a": "gemm",
        "job_b": "sort",
        "share_a_percent": 30.0,
        "share_b_percent": 70.0,
        "rate_a": 100.0 + number,
        "rate_b": 7.5,
        **_window(number),
    }
    return PairPoint(**{**values, **fields})


def _window(number: int) -> dict[str, Any]:
    return {
        "gpu_model": "NVIDIA H200",
        "gpu_uuid": "GPU-1",
        "window_s": 5.0,
        "started_at": f"2026-01-31T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "run": "r1",
    }


_WORDS = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=12)
_MOMENTS = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat())
_NUMBERS = st.floats(0, allow_infinity=False)
_SHARES = st.floats(0, 100, exclude_min=True)
_VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: _WORDS,
    float: _NUMBERS,
    int: st.integers(0, 2**31 - 1),
    bool: st.booleans(),
    tuple: st.lists(_WORDS.filter(lambda word: ";" not in word), max_size=3).map(tuple),
}


def _columns(kind: type[Point], **special: st.SearchStrategy[Any]) -> dict[str, Any]:
    return {
        name: st.none() | _VALUES[value_type] if optional else _VALUES[value_type]
        for name, (value_type, optional) in column_types(kind).items()
    } | {"started_at": _MOMENTS, **special}


def _in_order_of_names(**fields: Any) -> PairPoint:
    job_a, job_b = sorted((fields.pop("job_a"), fields.pop("job_b")))
    return PairPoint(job_a=job_a, job_b=job_b, **fields)


any_point: st.SearchStrategy[SoloPoint] = st.builds(
    SoloPoint, **_columns(SoloPoint, share_percent=_SHARES)
)
any_pair_point: st.SearchStrategy[PairPoint] = st.builds(
    _in_order_of_names, **_columns(PairPoint, share_a_percent=_SHARES, share_b_percent=_SHARES)
)
