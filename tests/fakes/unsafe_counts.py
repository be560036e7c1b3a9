"""Checks of counts for tests: those of a GPU with 132 SMs, or any."""

from collections.abc import Collection

from advisor.core.gpu import grantable
from advisor.validity.safe_counts import CheckedCounts

SAFE_132 = frozenset(
    {8, 10, 12, 14, 16, 22, 30, 32, 34, 62, 64, 66, 70, 118, 120, 122, 124, 126, 128, 130, 132}
)
UNSAFE_132 = frozenset(range(8, 133, 2)) - SAFE_132
WRONG = ("torch.mm bf16", "torch.bmm fp16")
"""Operations that are wrong at every unsafe count."""


def checked_132(gpu_model: str = "NVIDIA H200") -> CheckedCounts:
    """A GPU of 132 SMs, of which all even counts were checked."""
    return checked_with(132, UNSAFE_132, gpu_model=gpu_model)


def checked_with(
    units_total: int,
    unsafe: Collection[int],
    *,
    checked: Collection[int] | None = None,
    gpu_model: str = "NVIDIA H200",
) -> CheckedCounts:
    """A check that found these counts unsafe; all counts were checked unless given."""
    return CheckedCounts(
        gpu_model=gpu_model,
        gpu_uuid="GPU-1",
        units_total=units_total,
        driver="580.00",
        libraries={"torch": "2.0.0"},
        checked=tuple(sorted(grantable(units_total) if checked is None else checked)),
        wrong=dict.fromkeys(sorted(unsafe), WRONG),
        operations=WRONG,
        checked_at="2026-11-22T00:00:00+00:00",
        seconds=1.0,
    )
