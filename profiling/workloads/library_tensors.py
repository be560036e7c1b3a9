"""Tensors of `library_check.py`: inputs, results in four numbers, memory that holds NaNs; types.

PyTorch is imported inside functions.
"""

import math
from collections.abc import Callable
from typing import Any

from library_cases import CHUNK

POISON = 1 << 27
"""32-bit NaNs that are freed again before an operation, so that its results lie among them."""

SMALL_POISON, SMALL_BLOCKS = 1 << 18, 16
"""The same for results below 1 MiB, which PyTorch's allocator keeps apart."""


class Noise:
    """Numbers uniform in [-1, 1) that depend on nothing but their index.

    Those of PyTorch's own generator on CUDA depend on the number of SMs.
    """

    def __init__(self, device: str, size: int) -> None:
        import torch

        self.device = device
        parts = (
            torch.arange(i, min(i + CHUNK, size), device=device) for i in range(0, size, CHUNK)
        )
        self._bank = torch.cat([_hashed(part) for part in parts])

    def __call__(self, *shape: int, seed: int = 1) -> Any:
        """A float32 tensor; other seeds begin elsewhere."""
        count = math.prod(shape)
        start = seed * 7990271 % (len(self._bank) - count + 1)
        return self._bank[start : start + count].view(*shape)


def _hashed(index: Any) -> Any:
    """Mixes the bits of an index (after MurmurHash3's finaliser, Austin Appleby)."""
    x = (index * 2654435761 + 12345) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 2246822519) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 3266489917) & 0xFFFFFFFF
    return (x ^ (x >> 16)).float() / 2**31 - 1


def torch_type(name: str) -> Any:
    """PyTorch's name of a type."""
    import torch

    return {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "tf32": torch.float32,
        "fp8": getattr(torch, "float8_e4m3fn", None),
        "int8": torch.int8,
    }[name]


def fingerprint(values: Any, noise: Noise) -> list[float]:
    """A result of any type in the four numbers of a `Fingerprint`."""
    import torch

    values = torch.view_as_real(values) if values.is_complex() else values
    flat = values.detach().reshape(-1).double()
    finite = flat.isfinite()
    flat = torch.where(finite, flat, 0)
    weights = noise(len(flat), seed=78)
    sums = (~finite).sum(), (flat * weights).sum(), flat.abs().sum(), flat.square().sum().sqrt()
    return [number.item() for number in sums]


def attempt(compute: Callable[[], Any]) -> tuple[Any, str]:
    """What is computed, or why there is no such operation here.

    Raises:
        RuntimeError: the GPU is broken.
    """
    import torch

    try:
        return compute(), ""
    except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        # Fails again where it is the GPU that does not work.
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return None, str(error).split("\n")[0][:200] or type(error).__name__


def poison(device: str) -> None:
    """Leave NaNs in the memory that the allocator hands out next."""
    import torch

    if device == "cpu":
        return
    torch.cuda.empty_cache()
    blocks = [torch.full((SMALL_POISON,), float("nan"), device=device) for _ in range(SMALL_BLOCKS)]
    blocks.append(torch.full((POISON,), float("nan"), device=device))
    del blocks
