"""Which jobs are of one kind: leaving one out while its twin is learned from would flatter."""

_SAME = {"gemm": "matmul"}
"""Families under two names: both are dense matrix products."""


def family_of(job: str) -> str:
    """The family of a job: its name up to the first dash, so `bert` of `bert-train-b2`."""
    stem = job.partition("-")[0]
    return _SAME.get(stem, stem)
