"""GPU time of measuring, as campaigns took it; docs/measurements prints each figure."""

PAIR_POINT_S = 7.8
"""A pair at one split, with its part of references, settling and start-ups: 2025 pair points in
264.5 GPU-minutes (docs/measurements/pairs/cost.py)."""

SPLITS, SPLITS_BESIDE_ITSELF = 10, 6
"""Windows of a pair at `nine,uncapped`, and of a job next to itself."""

PROFILE_MINUTES = 80 / 60
"""A job alone at ten shares: median of 43 sweeps (docs/measurements/cost.py)."""

CHECK_MINUTES = 133 / 60
"""63 counts of SMs on an H100 (docs/check.md)."""


def pair_minutes(jobs: tuple[str, str]) -> float:
    """GPU time of a pair at the nine splits and without limits."""
    splits = SPLITS_BESIDE_ITSELF if jobs[0] == jobs[1] else SPLITS
    return splits * PAIR_POINT_S / 60
