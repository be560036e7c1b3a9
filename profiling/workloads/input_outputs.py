"""Whether the output of a product is right.

Every element is looked at, and some rows are computed again in float64 on the CPU.
"""

from typing import Any

ROWS = 8
"""So many rows are computed again, from the first to the last."""

ERRORS = {"bf16": 2**-8, "fp16": 2**-10, "tf32": 2**-9, "fp32": 2**-14, "fp8": 2**-7, "int8": 0.0}
"""Largest error, relative to the sum of the absolute products: rounding of outputs of that type (of
fp8 they are bf16, after sums with fewer bits), of tf32 rounding of inputs, of fp16 and fp32 of sums
in fp32."""

NOT_FINITE = 1e9
"""The error of an element that should be finite and is not; JSON has no word for infinity."""

LEAST = 1e-300
"""Instead of 0, by which nothing is divided."""


def checked(command: dict[str, Any], a: Any, b: Any, c: Any, first: Any) -> dict[str, Any]:
    """What the output is.

    Before `c` was computed there was 2
    in its place, and 1 before `first` was.
    """
    import torch

    rows = _rows(a.shape[0])
    expected, scale = _expected(a, b, rows)
    got = _double(_picked(c, rows))
    error, compared = _error(c, got, expected, scale, a.shape[1])
    return {
        "elements": c.numel(),
        "type": str(c.dtype).removeprefix("torch."),
        "nan": _count(c, torch.isnan),
        "infinite": _count(c, torch.isinf),
        "saturated": _saturated(c),
        "unwritten": _unwritten(c, first),
        "rows": len(rows),
        "compared": compared,
        "error": error,
        "allowed": ERRORS[command["dtype"]],
    }


def _rows(count: int) -> list[int]:
    last = count - 1
    return sorted({round(place * last / (ROWS - 1)) for place in range(ROWS)})


def _expected(a: Any, b: Any, rows: list[int]) -> tuple[Any, Any]:
    """Rows in float64, and the sums of their absolute products."""
    some = _double(_picked(a, rows))
    others = _double(b)
    return some @ others, some.abs() @ others.abs()


def _picked(values: Any, rows: list[int]) -> Any:
    """Rows, by their bytes: not every type can be indexed on every device."""
    import torch

    if values.element_size() > 1:
        return values[rows]
    return values.view(torch.uint8)[rows].view(values.dtype)


def _double(values: Any) -> Any:
    """On the CPU; int32 keeps all of its digits."""
    import torch

    here = values.cpu()
    return here.double() if here.dtype in (torch.int32, torch.int64) else here.float().double()


def _error(c: Any, got: Any, expected: Any, scale: Any, steps: int) -> tuple[float, int]:
    """The largest relative error of elements within range, and how many are."""
    import torch

    floor, most_sum, most = 0.0, float("inf"), float("inf")
    if c.is_floating_point():
        own = torch.finfo(c.dtype)
        sums = torch.finfo(torch.float32)
        floor, most_sum, most = own.tiny + steps * sums.tiny, sums.max / 2, own.max / 2
    usable = expected.isfinite() & (scale < most_sum) & (expected.abs() < most)
    if not usable.any():
        return 0.0, 0
    off = (got - expected).abs()[usable] - floor
    if not off.isfinite().all():
        return NOT_FINITE, int(usable.sum())
    relative = off.clamp(min=0) / scale[usable].clamp(min=LEAST)
    return float(relative.max()), int(usable.sum())


def _count(c: Any, of: Any) -> int:
    return int(of(c).sum()) if c.is_floating_point() and c.element_size() > 1 else 0


def _saturated(c: Any) -> int:
    """Elements at an end of the range of their type; sums of int8 reach none."""
    import torch

    if not c.is_floating_point() or c.element_size() == 1:
        return 0
    return int((c.abs() == torch.finfo(c.dtype).max).sum())


def _unwritten(c: Any, first: Any) -> int:
    """Elements that depend on what was there before: no launch wrote them."""
    import torch

    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[c.element_size()]
    return int((c.view(bits) != first.view(bits)).sum())
