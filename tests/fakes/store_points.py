"""Points for tests: one by hand, and any that can exist."""

from datetime import UTC
from typing import Any

from flat_records import from_flat
from hypothesis import strategies as st

from advisor.core.observations import OBSERVATION_WORDS, Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import column_types


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
_MOMENTS = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.isoformat())
_NUMBERS = st.floats(0, allow_infinity=False)
_SHARES = st.floats(0, 100, exclude_min=True)
_VERDICTS = st.none() | st.sampled_from(["right", "wrong", "differ"])
_VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: _WORDS,
    float: _NUMBERS,
    int: st.integers(0, 2**31 - 1),
    bool: st.booleans(),
    tuple: st.lists(_WORDS.filter(lambda word: ";" not in word), max_size=3).map(tuple),
}


def _columns(kind: type[Record], **special: st.SearchStrategy[Any]) -> dict[str, Any]:
    return {
        name: st.none() | _VALUES[value_type] if optional else _VALUES[value_type]
        for name, (value_type, optional) in column_types(kind).items()
    } | {"started_at": _MOMENTS, **_verdicts(kind), **special}


def _verdicts(kind: type[Record]) -> dict[str, Any]:
    return {name: _VERDICTS for name in column_types(kind) if name.split("_")[0] == "results"}


def _pair(**fields: Any) -> PairPoint:
    return from_flat(PairPoint, **_in_order_of_names(fields))


def _observation(**fields: Any) -> Observation:
    return from_flat(Observation, **_in_order_of_names(fields))


def _in_order_of_names(fields: dict[str, Any]) -> dict[str, Any]:
    job_a, job_b = sorted((fields["job_a"], fields["job_b"]))
    return {**fields, "job_1": job_a, "job_2": job_b}


any_point: st.SearchStrategy[SoloPoint] = st.builds(
    SoloPoint, **_columns(SoloPoint, share_percent=_SHARES)
)
any_pair_point: st.SearchStrategy[PairPoint] = st.builds(
    _pair,
    **_columns(PairPoint, share_a_percent=_SHARES, share_b_percent=_SHARES),
)
any_observation: st.SearchStrategy[Observation] = st.builds(
    _observation,
    **_columns(
        Observation,
        share_a_percent=_SHARES,
        share_b_percent=_SHARES,
        **{name: st.sampled_from(words) for name, words in OBSERVATION_WORDS.items()},
    ),
)
