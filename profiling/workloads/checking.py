"""What tells whether a workload computes what it should: one number for the result of one step.

The same seed must give the same number under every limit, but for rounding, so random numbers must
not depend on the number of SMs either. PyTorch is imported inside functions.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

CHUNK = 16_384
"""Random numbers are drawn in pieces of this size. PyTorch deals a longer row out to as many blocks
of 256 threads as the granted SMs hold, eight on each, and which block draws a number decides which
one it is. Eight SMs, the fewest that there are under MPS, hold 64 blocks."""

_PIECE = 2**22
"""Elements that a checksum takes at once, for the sake of GPU memory."""


@contextlib.contextmanager
def same_numbers() -> Iterator[None]:
    """Inside, random tensors are the same for the same seed, whatever the number of SMs."""
    import torch

    changed = {
        (torch.Tensor, name): _in_pieces(getattr(torch.Tensor, name))
        for name in ("normal_", "uniform_", "random_")
    } | {
        (torch, "randn"): lambda *shape, **options: torch.empty(*shape, **options).normal_(),
        (torch, "rand"): lambda *shape, **options: torch.empty(*shape, **options).uniform_(),
        (torch, "randint"): _random_integers,
    }
    # Changed in place: initialisers of networks reach them by many ways.
    before = {place: getattr(*place) for place in changed}
    try:
        for (owner, name), function in changed.items():
            setattr(owner, name, function)
        yield
    finally:
        for (owner, name), function in before.items():
            setattr(owner, name, function)


def _in_pieces(fill: Callable[..., Any]) -> Callable[..., Any]:
    def fill_in_pieces(tensor: Any, *args: Any, **options: Any) -> Any:
        chunk = CHUNK // 2 if tensor.is_complex() else CHUNK  # two numbers for each element
        if not tensor.is_contiguous() or tensor.numel() <= chunk:
            return fill(tensor, *args, **options)
        for piece in tensor.detach().view(-1).split(chunk):
            fill(piece, *args, **options)
        return tensor

    return fill_in_pieces


def _random_integers(*arguments: Any, **options: Any) -> Any:
    """As `torch.randint([low], high, shape)`."""
    import torch

    *bounds, shape = arguments
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return torch.empty(shape, **{"dtype": torch.int64, **options}).random_(low, high)


def checksum(result: Any) -> float:
    """One number for a result: its size, and how it lies in one pseudo-random direction.

    Root mean square plus the absolute projection on signs that depend on the place of an element:
    parts that were never written, or moved, change it even where the size stays as it was. NaN
    and infinity come through.
    """
    squares, projection, count = 0.0, 0.0, 0
    for tensor in tensors_of(result):
        for piece in tensor.detach().reshape(-1).split(_PIECE):
            if not piece.numel():
                continue
            values = _real(piece).double()
            squares += float((values * values).sum())
            projection += float((values * _signs(values, count)).sum())
            count += values.numel()
    return math.sqrt(squares / count) + abs(projection) / math.sqrt(count) if count else math.nan


def tensors_of(result: Any) -> Iterator[Any]:
    """The tensors of a result, in order."""
    import torch

    if isinstance(result, torch.Tensor):
        yield result
    elif hasattr(result, "logits"):
        yield result.logits
    elif isinstance(result, list | tuple):
        for item in result:
            yield from tensors_of(item)


@contextlib.contextmanager
def without_dropout(network: Any) -> Iterator[None]:
    """Inside, nothing is dropped: which elements are depends on the number of SMs."""
    import torch

    dropped = [m for m in network.modules() if isinstance(m, torch.nn.Dropout)]
    before = [module.p for module in dropped]
    for module in dropped:
        module.p = 0.0
    try:
        yield
    finally:
        for module, chance in zip(dropped, before, strict=True):
            module.p = chance


def _real(piece: Any) -> Any:
    import torch

    return torch.view_as_real(piece).reshape(-1) if piece.is_complex() else piece


def _signs(values: Any, first: int) -> Any:
    """+1 or -1 by the place of an element (Knuth's multiplicative hash, one of its high bits)."""
    import torch

    places = torch.arange(first, first + values.numel(), device=values.device)
    return 1 - 2 * ((places * 2_654_435_761 >> 31) & 1).double()
