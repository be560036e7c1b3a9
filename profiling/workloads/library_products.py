"""The matrix products of `library_check.py`, each checked in itself."""

from typing import Any

from library_cases import CHUNK, LibraryProduct, wrong_rows
from library_tensors import Noise, poison, torch_type


def count_wrong_rows(product: LibraryProduct, noise: Noise) -> int:
    """Compute a matrix product into NaNs, and count the rows that are wrong."""
    import torch

    torch.set_float32_matmul_precision("high" if product.dtype == "tf32" else "highest")
    left, right = _factors(product, noise)
    vector = noise(product.columns, seed=77).double()
    offset = 0
    if product.kind == "bias":
        bias = noise(product.columns, seed=4).to(left.dtype)
        offset = (bias.double() * vector).sum()
        poison(noise.device)
        found = torch.nn.functional.linear(left, right.t(), bias)
    else:
        found = _multiply(product, left, right)
    return wrong_rows(_dot, found, left, right, vector, product.tolerance, offset)


def _factors(product: LibraryProduct, noise: Noise) -> tuple[Any, Any]:
    *batch, m, n, k = product.shape
    x, w, g = (
        _as_type(noise(*batch, *sides, seed=seed), product.dtype)
        for seed, sides in enumerate(((m, k), (n, k), (m, n)), 1)
    )
    if product.kind == "data gradient":
        return g, w
    if product.kind == "weight gradient":
        return g.t(), x
    return x, w.transpose(-1, -2)


def _as_type(values: Any, dtype: str) -> Any:
    return (values * 127 if dtype == "int8" else values).to(torch_type(dtype))


def _multiply(product: LibraryProduct, left: Any, right: Any) -> Any:
    """The product, written into memory that holds nothing like it."""
    import torch

    shape = (*left.shape[:-1], right.shape[-1])
    if product.dtype == "int8":
        out = torch.full(shape, 2**30, dtype=torch.int32, device=left.device)
        return torch._int_mm(left, right, out=out)
    kind = torch.bfloat16 if product.dtype == "fp8" else left.dtype
    out = torch.full(shape, float("nan"), dtype=kind, device=left.device)
    if product.dtype == "fp8":
        one = torch.ones((), device=left.device)
        return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=kind, out=out)
    return torch.matmul(left, right, out=out)


def _dot(matrix: Any, vector: Any) -> Any:
    """Row by row, in float64, a part at a time."""
    import torch

    step = max(1, CHUNK // (matrix.numel() // len(matrix)))
    vector = vector.expand_as(matrix)
    parts = [slice(i, i + step) for i in range(0, len(matrix), step)]
    return torch.cat([(_wide(matrix[part]) * vector[part]).sum(-1) for part in parts])


def _wide(values: Any) -> Any:
    # There is no way from float8 to float64 but over float32.
    return values.float().double() if values.element_size() == 1 else values.double()
