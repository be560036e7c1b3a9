"""Made-up pair points for tests."""

from typing import Any

from advisor.core.records import PairPoint


def pair_point(share_a: float = 30.0, share_b: float = 70.0, **fields: Any) -> PairPoint:
    """A point of gemm beside triad on one card."""
    values: dict[str, Any] = {
        "job_a": "gemm",
        "job_b": "triad",
        "gpu_model": "NVIDIA H200",
        "gpu_uuid": "GPU-1",
        "mode": "uncapped" if (share_a, share_b) == (100, 100) else "mps",
        "units_total": 132,
        "units_a": 38,
        "units_b": 92,
        "rate_a": share_a,
        "rate_b": 10 * share_b,
        "power_w": 500.0,
        "window_s": 2.0,
        "started_at": "2026-01-01T00:00:00Z",
        "run": "r1",
        **fields,
    }
    return PairPoint(share_a_percent=share_a, share_b_percent=share_b, **values)
