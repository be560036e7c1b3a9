"""Pair and solo points for tests whose values can be worked out by hand."""

from collections.abc import Mapping
from typing import Any

from flat_records import from_flat

from advisor.core.records import PairPoint, SoloPoint

SHARES = (10, 20, 30, 40, 50, 60, 70, 80, 90)


def solo(job: str = "a", **fields: Any) -> SoloPoint:
    """A job alone on the whole GPU: 1 step per second at 100 W."""
    values: dict[str, Any] = {
        "job": job,
        "gpu_model": "Card",
        "gpu_uuid": "GPU-1",
        "share_percent": 100.0,
        "rate": 1.0,
        "power_w": 100.0,
        "window_s": 5.0,
        "started_at": "2026-01-31T12:00:00Z",
        "run": "solo",
    }
    return SoloPoint(**{**values, **fields})


def pair(share_a: float = 50, share_b: float = 50, **fields: Any) -> PairPoint:
    """Jobs "a" and "b", each at half of its solo rate, 100 W together."""
    values: dict[str, Any] = {
        "job_1": "a",
        "job_2": "b",
        "gpu_model": "Card",
        "gpu_uuid": "GPU-1",
        "units_total": 132,
        "share_1_percent": float(share_a),
        "share_2_percent": float(share_b),
        "rate_1": 0.5,
        "rate_2": 0.5,
        "power_w": 100.0,
        "window_s": 5.0,
        "started_at": f"2026-01-31T12:00:{share_a % 60:02.0f}Z",
        "run": "r1",
    }
    return from_flat(PairPoint, **{**values, **fields})


def nine(throughput: Mapping[int, float] | None = None, **fields: Any) -> list[PairPoint]:
    """The nine splits: each job at its share's speed, or the sum as given for the first share."""
    given = throughput or {}
    return [
        pair(share, 100 - share, **{**_rates(share, given.get(share)), **fields})
        for share in SHARES
    ]


SOLOS = [solo("a"), solo("b")]


def _rates(share: int, total: float | None) -> dict[str, float]:
    if total is None:
        return {"rate_1": share / 100, "rate_2": (100 - share) / 100}
    return {"rate_1": total / 2, "rate_2": total / 2}
