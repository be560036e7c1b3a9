"""What `library_check.py` computes, and how far a right result may be off.

No PyTorch in here, so that the arithmetic of judging can be tested without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]

EPSILON = {
    "bf16": 2**-8,
    "fp16": 2**-10,
    "tf32": 2**-10,
    "fp32": 2**-18,
    "fp8": 2**-7,  # its products are rounded to bf16
    "int8": 127**2 * 2**-30,  # exact, on values up to 127 instead of 1
}
"""Relative rounding error that one element may have, by type, sums in that type's way included."""

SLACK = 8
"""How many times `EPSILON` a result may be off: errors of many elements cancel, so that rounding
stays far below it, and a tile that is missing is far above."""

TINY_SIDE = 32

CHUNK = 1 << 24
"""Elements that are taken to float64 at a time."""

PRODUCTS = (
    (4096, 4096, 4096),
    (12288, 1536, 512),
    (12288, 512, 2048),
    (2048, 2048, 2048),
    (1000, 1000, 1000),
    (4096, 3072, 768),
    (4096, 768, 768),
    (512, 512, 65536),
    (128, 4096, 4096),
    (1, 4096, 4096),
    (32768, 64, 256),
)
"""Rows, output features and input features of a linear layer."""

NARROW_PRODUCTS = (
    *((rows * 2, wide, narrow) for rows, narrow, wide in (
        (3136, 64, 256), (784, 128, 512), (196, 256, 1024), (49, 512, 2048)
    )),
    *((rows * 2, narrow, wide) for rows, narrow, wide in (
        (3136, 64, 256), (784, 128, 512), (196, 256, 1024), (49, 512, 2048)
    )),
    (98, 1000, 2048),
    (256, 768, 768),
    (394, 2304, 768),
    (394, 768, 3072),
    (512, 30522, 768),
    (2048, 1024, 4096),
    (8192, 128, 8192),
    (100352, 64, 256),
)  # fmt: skip
"""Small and narrow ones, in half precision only: 1x1 convolutions of ResNet-50 and linear layers of
transformers at batch 2. Which kernel is taken, and how many clusters it has, depends on the shape;
ResNet-50 at batch 2 once gave NaN at a count at which none of the larger products were wrong."""

SMALL_TYPE_PRODUCTS = ((4096, 4096, 4096), (12288, 1536, 512), (2048, 2048, 2048))
"""The same for fp8 and int8, which need multiples of 16."""

BATCHED = ((96, 512, 512, 64), (16, 1024, 512, 1024))
"""Batch, rows, columns, and the length that is summed over."""

WITH_BIAS = ((12288, 2048, 512), (4096, 768, 768))

CONVOLUTIONS = {
    "3x3": ((16, 64, 56, 56), (64, 64, 3, 3), 1),
    "3x3 of 512": ((16, 512, 7, 7), (512, 512, 3, 3), 1),
    "1x1": ((16, 256, 56, 56), (64, 256, 1, 1), 1),
    "7x7": ((16, 3, 224, 224), (64, 3, 7, 7), 2),
    "depthwise": ((16, 96, 56, 56), (96, 1, 3, 3), 1),
}
"""Shapes of input and weight, and the stride."""

ATTENTION = (4, 8, 512, 64)
"""Batch, heads, tokens, features of a head."""

LAYER_NORM = (4096, 1024)
BATCH_NORM = (16, 128, 28, 28)
FFT = (16, 1 << 16)
SORT, SUM, CUMSUM = (1 << 22,), (1 << 24,), (1 << 20,)


@dataclass(frozen=True)
class LibraryProduct:
    """A matrix product: left (.., rows, inner) by right (.., inner, columns).

    Attributes:
        kind: "forward" is x @ w.T of a linear layer, "data gradient" g @ w, "weight gradient"
            g.T @ x; "batched" and "bias" are what they say.
        shape: (m, n, k): x is m by k, w is n by k, g is m by n; with the batch in front.
    """

    dtype: str
    kind: str
    shape: Shape

    @property
    def name(self) -> str:
        """Such as `matmul fp16 forward 512x4096x4096`."""
        return f"matmul {self.dtype} {self.kind} {'x'.join(map(str, self.shape))}"

    @property
    def inner(self) -> int:
        """Length that is summed over."""
        m, n, k = self.shape[-3:]
        return {"data gradient": n, "weight gradient": m}.get(self.kind, k)

    @property
    def columns(self) -> int:
        """Columns of the result."""
        _, n, k = self.shape[-3:]
        return k if self.kind.endswith("gradient") else n

    @property
    def tolerance(self) -> float:
        """How far a row of the result, times a random vector, may be off."""
        return product_tolerance(self.dtype, self.inner, self.columns)


def products(tiny: bool = False) -> list[LibraryProduct]:
    """All matrix products that are tried."""
    every_type = ("bf16", "fp16", "fp32", "tf32")
    linear = [
        LibraryProduct(dtype, kind, shape)
        for dtypes, shapes in ((every_type, PRODUCTS), (every_type[:2], NARROW_PRODUCTS))
        for dtype in dtypes
        for shape in shapes
        for kind in ("forward", "data gradient", "weight gradient")
    ]
    small = [LibraryProduct(t, "forward", s) for t in ("fp8", "int8") for s in SMALL_TYPE_PRODUCTS]
    more = [
        LibraryProduct(dtype, kind, shape)
        for dtype in ("bf16", "fp16", "fp32")
        for kind, shapes in (("batched", BATCHED), ("bias", WITH_BIAS))
        for shape in shapes
    ]
    every = [*linear, *small, *more]
    if not tiny:
        return every
    return list(dict.fromkeys(LibraryProduct(p.dtype, p.kind, cut(p.shape)) for p in every))


def cut(shape: Shape) -> Shape:
    """The shape as small as a smoke test wants it."""
    return tuple(min(side, TINY_SIDE) for side in shape)


def product_tolerance(dtype: str, inner: int, columns: int) -> float:
    """Bound on the error of (C v) in one row, for factors and v uniform in [-1, 1].

    An element of C has a standard deviation of sqrt(inner) / 3 and is rounded to `EPSILON`; the
    errors of a row's elements are independent, so that their sum grows as the root of the columns.
    """
    return SLACK * EPSILON[dtype] * (inner * columns / 3) ** 0.5


def wrong_rows(
    dot: Callable[[Any, Any], Any],
    product: Any,
    left: Any,
    right: Any,
    vector: Any,
    tolerance: float,
    offset: Any = 0,
) -> int:
    """Rows of `product` that are not `left` times `right`: Freivalds' check.

    (Rusins Freivalds, Probabilistic machines can use less running time, IFIP 1977.) No product of
    matrices is used: C v is compared with A (B v), each a row of plain sums in float64.

    Args:
        dot: Sums rows times a vector in float64, over the last axis.
        product: (.., rows, columns); an element that was never written is NaN and never right.
        left: (.., rows, inner).
        right: (.., inner, columns).
        vector: (columns,), random.
        tolerance: Bound on the error of a row.
        offset: What the product has on top in each row, already times the vector.
    """
    inner = dot(right, vector)[..., None, :]
    error = abs(dot(product, vector) - dot(left, inner) - offset)
    return int((~(error <= tolerance)).sum())


@dataclass(frozen=True)
class ResultFingerprint:
    """A result in four numbers: values that are not finite, and of the others these sums.

    Attributes:
        weighted: Sum of values times fixed random numbers.
        total: Sum of the values' sizes.
        norm: Root of the sum of squares.
    """

    not_finite: int
    weighted: float
    total: float
    norm: float


def same(
    found: Sequence[ResultFingerprint], wanted: Sequence[ResultFingerprint], dtype: str
) -> bool:
    """Whether results are those of the reference, but for the rounding of `dtype`."""
    bound = SLACK * EPSILON[dtype]
    return len(found) == len(wanted) and all(
        f.not_finite == w.not_finite
        and abs(f.weighted - w.weighted) <= bound * w.norm
        and abs(f.total - w.total) <= bound * w.total
        for f, w in zip(found, wanted, strict=True)
    )
