"""Made-up pair points for tests."""

from typing import Any

from flat_records import from_flat

from advisor.core.records import PairPoint


def pair_point(share_a: float = 30.0, share_b: float = 70.0, **fields: Any) -> PairPoint:
    """A point of gemm next to triad on one card."""
    values: dict[str, Any] = {
        "share_1_percent": share_a,
        "share_2_percent": share_b,
        "job_1": "gemm",
        "job_2": "triad",
        "gpu_model": "NVIDIA H200",
        "gpu_uuid": "GPU-1",
        "mode": "uncapped" if (share_a, share_b) == (100, 100) else "mps",
        "units_total": 132,
        "units_1": 38,
        "units_2": 92,
        "rate_1": share_a,
        "rate_2": 10 * share_b,
        "power_w": 500.0,
        "window_s": 2.0,
        "started_at": "2026-01-01T00:00:00Z",
        "run": "r1",
        **fields,
    }
    return from_flat(PairPoint, **values)
