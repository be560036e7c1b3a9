"""What is measured: some work on matrices of a shape and a type, filled as their operands say."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.errors import InputError
from advisor_power.operands.from_file import pinned
from advisor_power.operands.grammar import OperandPair, parse_operands

InputWork: TypeAlias = Literal["product", "half-sums", "copy"]
"""product: C = A B with sums in fp32, of int8 in int32; half-sums: the same of fp16 with sums in
fp16; copy: of A."""

ProductShape: TypeAlias = tuple[int, int, int]
"""m, n, k: A is m by k, B is k by n."""

_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}

_MULTIPLES = {"fp8": 16, "int8": 8}
"""Of n and k; of m as well where it is fp8. The library refuses other sizes of these types."""

_INT8_LEAST_M = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCase:
    """One point of a sweep."""

    operands: str
    """Canonical text of both matrices."""
    shape: ProductShape
    dtype: str
    """One of `operands.words.DTYPES`."""
    work: InputWork = "product"

    @property
    def pair(self) -> OperandPair:
        """The operands."""
        return parse_operands(self.operands)

    @property
    def launch_work(self) -> float:
        """Of one launch: arithmetic operations of a product, else bytes that are moved."""
        m, n, k = self.shape
        return 2.0 * m * k * (_BYTES[self.dtype] if self.work == "copy" else n)

    @property
    def unit(self) -> str:
        """What `launch_work` counts."""
        return "byte" if self.work == "copy" else "operation"

    def __str__(self) -> str:
        m, n, k = self.shape
        work = "" if self.work == "product" else f" {self.work}"
        return f"{self.operands} {m}x{n}x{k} {self.dtype}{work}"


def case_of(
    operands: str, shape: ProductShape, dtype: str, work: InputWork = "product"
) -> InputCase:
    """A case that can be computed, by its canonical text.

    Raises:
        InputError: the operands or a file of them cannot be read, or the library does not multiply
            such a shape.
    """
    text = str(pinned(parse_operands(operands)))
    case = InputCase(operands=text, shape=shape, dtype=dtype, work=work)
    if work != "copy":
        _check_shape(shape, dtype)
    if work == "half-sums" and dtype != "fp16":
        raise InputError(f"sums in fp16 of a product of {dtype}", fix="take --dtype fp16")
    return case


def parse_shape(text: str) -> ProductShape:
    """m, n, k of `MxNxK` or `M,N,K`.

    Raises:
        InputError: it is no shape.
    """
    sizes = text.lower().replace(",", "x").split("x")
    if len(sizes) != 3 or not all(s.strip().isdecimal() and 0 < int(s) < 2**31 for s in sizes):
        raise InputError(
            f"--shape {text} is no shape",
            why="it takes three sizes: rows of A, columns of B, and what both share",
            fix="write --shape 4096x4096x4096",
        )
    m, n, k = (int(size) for size in sizes)
    return m, n, k


def _check_shape(shape: ProductShape, dtype: str) -> None:
    m, n, k = shape
    multiple = _MULTIPLES.get(dtype, 1)
    sizes = (m, n, k) if dtype == "fp8" else (n, k)
    odd = [size for size in sizes if size % multiple]
    if odd:
        raise InputError(
            f"a product of {m}x{n}x{k} in {dtype} has a side of {odd[0]}",
            why=f"cuBLAS multiplies {dtype} only in multiples of {multiple}",
            fix=f"take multiples of {multiple}, or another --dtype",
        )
    if dtype == "int8" and m < _INT8_LEAST_M:
        raise InputError(
            f"a product of int8 with {m} rows",
            why=f"PyTorch multiplies int8 from {_INT8_LEAST_M} rows on",
            fix="take more rows, or another --dtype",
        )
