"""Points for tests: one by hand, and any that can exist."""

from datetime import UTC
from typing import Any

from hypothesis import strategies as st

from advisor.records import SoloPoint
from advisor.rows import column_types


def point(number: int = 0, **fields: Any) -> SoloPoint:
    """A point; each number is another measurement of one run."""
    values: dict[str, Any] = {
        "job": "gemm",
        "gpu_model": "NVIDIA H200",
        "gpu_uuid": "GPU-1",
        "share_percent": 50.0,
        "rate": 100.0 + number,
        "window_s": 5.0,
        "started_at": f"2026-01-31T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "run": "r1",
    }
    return SoloPoint(**{**values, **fields})


_WORDS = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=12)
_MOMENTS = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat())
_NUMBERS = st.floats(0, allow_infinity=False)
_SHARES = st.floats(0, 100, exclude_min=True)
_KINDS: dict[type, st.SearchStrategy[Any]] = {
    str: _WORDS,
    float: _NUMBERS,
    int: st.integers(0, 2**31 - 1),
    bool: st.booleans(),
    tuple: st.lists(_WORDS.filter(lambda word: ";" not in word), max_size=3).map(tuple),
}
_COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    name: st.none() | _KINDS[kind] if optional else _KINDS[kind]
    for name, (kind, optional) in column_types().items()
}

any_point: st.SearchStrategy[SoloPoint] = st.builds(
    SoloPoint, **{**_COLUMNS, "started_at": _MOMENTS, "share_percent": _SHARES}
)
