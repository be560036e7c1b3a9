"""Do the libraries compute right results at the number of SMs that this process was granted?

`advisor check` runs this at each count, with the Python that has PyTorch: first on the whole GPU,
where `--write` keeps the reference, then at each count, which is compared with it. By hand:

    python3 library_check.py --write /tmp/reference.json
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70 python3 library_check.py --reference /tmp/reference.json

Matrix products are checked in themselves (Freivalds), everything else against the same in float64
on the whole GPU. Prints one JSON object: units, libraries, operations, wrong, values, skipped.
"""

import argparse
import ctypes
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import torch, torch_type

Shape = tuple[int, ...]

# Relative rounding error that one element may have, by type, sums in that type's way included.
_EPSILON = {
    "bf16": 2**-8,
    "fp16": 2**-10,
    "tf32": 2**-10,
    "fp32": 2**-18,
    "fp8": 2**-7,  # its products are rounded to bf16
    "int8": 127**2 * 2**-30,  # exact, on values up to 127 instead of 1
}

# How many times `_EPSILON` a result may be off: errors of many elements cancel, so that rounding
# stays far below it, and a tile that is missing is far above.
_SLACK = 8

TINY_SIDE = 32

# Elements that are taken to float64 at a time.
_CHUNK = 1 << 24

# Rows, output features and input features of a linear layer.
_PRODUCTS = (
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

# Small and narrow ones, in half precision only: 1x1 convolutions of ResNet-50 and linear layers of
# transformers at batch 2. Which kernel is taken, and how many clusters it has, depends on the
# shape; ResNet-50 at batch 2 once gave NaN at a count at which none of the larger products were
# wrong.
_NARROW_PRODUCTS = (
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

# Shapes of input and weight, and the stride.
_CONVOLUTIONS = {
    "3x3": ((16, 64, 56, 56), (64, 64, 3, 3), 1),
    "3x3 of 512": ((16, 512, 7, 7), (512, 512, 3, 3), 1),
    "1x1": ((16, 256, 56, 56), (64, 256, 1, 1), 1),
    "7x7": ((16, 3, 224, 224), (64, 3, 7, 7), 2),
    "depthwise": ((16, 96, 56, 56), (96, 1, 3, 3), 1),
}


@dataclass(frozen=True)
class _LibraryProduct:
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


def products(tiny: bool = False) -> list[_LibraryProduct]:
    """All matrix products that are tried."""
    every_type = ("bf16", "fp16", "fp32", "tf32")
    linear = [
        _LibraryProduct(dtype, kind, shape)
        for dtypes, shapes in ((every_type, _PRODUCTS), (every_type[:2], _NARROW_PRODUCTS))
        for dtype in dtypes
        for shape in shapes
        for kind in ("forward", "data gradient", "weight gradient")
    ]
    small = [
        _LibraryProduct(dtype, "forward", shape)
        for dtype in ("fp8", "int8")  # which need multiples of 16
        for shape in ((4096, 4096, 4096), (12288, 1536, 512), (2048, 2048, 2048))
    ]
    more = [
        _LibraryProduct(dtype, kind, shape)
        for dtype in ("bf16", "fp16", "fp32")
        for kind, shapes in (
            # Batch, rows, columns, and the length that is summed over.
            ("batched", ((96, 512, 512, 64), (16, 1024, 512, 1024))),
            ("bias", ((12288, 2048, 512), (4096, 768, 768))),
        )
        for shape in shapes
    ]
    every = [*linear, *small, *more]
    if not tiny:
        return every
    return list(dict.fromkeys(_LibraryProduct(p.dtype, p.kind, _cut(p.shape)) for p in every))


def _cut(shape: Shape) -> Shape:
    """The shape as small as a smoke test wants it."""
    return tuple(min(side, TINY_SIDE) for side in shape)


def product_tolerance(dtype: str, inner: int, columns: int) -> float:
    """Bound on the error of (C v) in one row, for factors and v uniform in [-1, 1].

    An element of C has a standard deviation of sqrt(inner) / 3 and is rounded to `_EPSILON`; the
    errors of a row's elements are independent, so that their sum grows as the root of the columns.
    """
    return _SLACK * _EPSILON[dtype] * (inner * columns / 3) ** 0.5


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
    error = abs(dot(product, vector) - dot(left, dot(right, vector)[..., None, :]) - offset)
    return int((~(error <= tolerance)).sum())


# A result in four numbers: how many values are not finite, and of the others the sum of values
# times fixed random numbers, the sum of their sizes, and the root of the sum of squares.
Fingerprint = Sequence[float]


def same(results: Sequence[Fingerprint], wanted: Sequence[Fingerprint], dtype: str) -> bool:
    """Whether results are those of the reference, but for the rounding of `dtype`."""
    bound = _SLACK * _EPSILON[dtype]
    return len(results) == len(wanted) and all(
        not_finite == right[0]
        and abs(weighted - right[1]) <= bound * right[3]
        and abs(total - right[2]) <= bound * right[2]
        for (not_finite, weighted, total, _), right in zip(results, wanted, strict=True)
    )


# 32-bit NaNs that are freed again before an operation, so that its results lie among them.
_POISON = 1 << 27

# The same for results below 1 MiB, which PyTorch's allocator keeps apart.
_SMALL_POISON, _SMALL_BLOCKS = 1 << 18, 16


class _Noise:
    """Numbers uniform in [-1, 1) that depend on nothing but their index.

    Those of PyTorch's own generator on CUDA depend on the number of SMs.
    """

    def __init__(self, device: str, size: int) -> None:
        self.device = device
        parts = (
            torch.arange(i, min(i + _CHUNK, size), device=device) for i in range(0, size, _CHUNK)
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


def _fingerprint(values: Any, noise: _Noise) -> list[float]:
    """A result of any type as a `Fingerprint`."""
    values = torch.view_as_real(values) if values.is_complex() else values
    flat = values.detach().reshape(-1).double()
    finite = flat.isfinite()
    flat = torch.where(finite, flat, 0)
    weights = noise(len(flat), seed=78)
    sums = (~finite).sum(), (flat * weights).sum(), flat.abs().sum(), flat.square().sum().sqrt()
    return [number.item() for number in sums]


def _attempt(compute: Callable[[], Any]) -> tuple[Any, str]:
    """What is computed, or why there is no such operation here.

    Raises:
        RuntimeError: the GPU is broken.
    """
    try:
        return compute(), ""
    except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        # Fails again where it is the GPU that does not work.
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return None, str(error).split("\n")[0][:200] or type(error).__name__


def _poison(device: str) -> None:
    """Leave NaNs in the memory that the allocator hands out next."""
    if device == "cpu":
        return
    torch.cuda.empty_cache()
    blocks = [
        torch.full((_SMALL_POISON,), float("nan"), device=device) for _ in range(_SMALL_BLOCKS)
    ]
    blocks.append(torch.full((_POISON,), float("nan"), device=device))
    del blocks


def _count_wrong_rows(product: _LibraryProduct, noise: _Noise) -> int:
    """Compute a matrix product into NaNs, and count the rows that are wrong."""
    torch.set_float32_matmul_precision("high" if product.dtype == "tf32" else "highest")
    left, right = _factors(product, noise)
    vector = noise(product.columns, seed=77).double()
    offset = 0
    if product.kind == "bias":
        bias = noise(product.columns, seed=4).to(left.dtype)
        offset = (bias.double() * vector).sum()
        _poison(noise.device)
        product_rows = torch.nn.functional.linear(left, right.t(), bias)
    else:
        product_rows = _multiply(product, left, right)
    tolerance = product_tolerance(product.dtype, product.inner, product.columns)
    return wrong_rows(_dot, product_rows, left, right, vector, tolerance, offset)


def _factors(product: _LibraryProduct, noise: _Noise) -> tuple[Any, Any]:
    *batch, m, n, k = product.shape
    most = 127 if product.dtype == "int8" else 1
    x, w, g = (
        (noise(*batch, *sides, seed=seed) * most).to(torch_type(product.dtype))
        for seed, sides in enumerate(((m, k), (n, k), (m, n)), 1)
    )
    if product.kind == "data gradient":
        return g, w
    if product.kind == "weight gradient":
        return g.t(), x
    return x, w.transpose(-1, -2)


def _multiply(product: _LibraryProduct, left: Any, right: Any) -> Any:
    """The product, written into memory that holds nothing like it."""
    shape = (*left.shape[:-1], right.shape[-1])
    if product.dtype == "int8":
        out = torch.full(shape, 2**30, dtype=torch.int32, device=left.device)
        return torch._int_mm(left, right, out=out)
    kind = torch.bfloat16 if product.dtype == "fp8" else left.dtype
    out = torch.full(shape, float("nan"), dtype=kind, device=left.device)
    if product.dtype == "fp8":
        unit = torch.ones((), device=left.device)
        return torch._scaled_mm(left, right, scale_a=unit, scale_b=unit, out_dtype=kind, out=out)
    return torch.matmul(left, right, out=out)


def _dot(matrix: Any, vector: Any) -> Any:
    """Row by row, in float64, a part at a time."""
    step = max(1, _CHUNK // (matrix.numel() // len(matrix)))
    vector = vector.expand_as(matrix)
    parts = [slice(i, i + step) for i in range(0, len(matrix), step)]
    return torch.cat([(_wide(matrix[part]) * vector[part]).sum(-1) for part in parts])


def _wide(values: Any) -> Any:
    # There is no way from float8 to float64 but over float32.
    return values.float().double() if values.element_size() == 1 else values.double()


@dataclass(frozen=True)
class _Operation:
    """One operation with its inputs, whose results are compared with those of the whole GPU.

    Attributes:
        dtype: Of its inputs.
        rounding: The type in which it rounds.
        inputs: Shapes; the values are noise.
        function: From inputs to the result.
        gradients: Those by all inputs are results, too.
        reference: The function in float64, where it must be another.
    """

    name: str
    dtype: str
    rounding: str
    inputs: tuple[Shape, ...]
    function: Callable[..., Any]
    gradients: bool = True
    reference: Callable[..., Any] | None = None


def _operations(tiny: bool = False) -> list[_Operation]:
    """All operations that are no plain matrix products."""
    every = [*_convolutions(), *_attention(), *_norms(), *_others()]
    return (
        [
            replace(operation, inputs=tuple(_cut(shape) for shape in operation.inputs))
            for operation in every
        ]
        if tiny
        else every
    )


def _compute(operation: _Operation, noise: _Noise, wide: bool = False) -> list[list[float]]:
    """Fingerprints of the results, as JSON has them; `wide`: of the same inputs in float64.

    Raises:
        RuntimeError: there is no such operation here.
    """
    function = (wide and operation.reference) or operation.function
    inputs = [
        _input(noise, shape, seed, operation, wide)
        for seed, shape in enumerate(operation.inputs, 1)
    ]
    _poison(noise.device)
    result = function(*inputs)
    if not operation.gradients:
        return [_fingerprint(result, noise)]
    above = noise(*result.shape, seed=9).to(torch_type(operation.dtype)).to(result.dtype)
    _poison(noise.device)
    return [_fingerprint(t, noise) for t in (result, *torch.autograd.grad(result, inputs, above))]


def _input(noise: _Noise, shape: Shape, seed: int, operation: _Operation, wide: bool) -> Any:
    values = noise(*shape, seed=seed).to(torch_type(operation.dtype))
    values = values.double() if wide else values.clone()
    return values.requires_grad_(operation.gradients)


def _convolutions() -> Iterator[_Operation]:
    layouts = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
    for dtype in ("bf16", "fp16", "fp32"):
        for size, (x, w, stride) in _CONVOLUTIONS.items():
            for layout, memory_format in layouts.items():
                yield _Operation(
                    f"convolution {dtype} {size} {layout}",
                    dtype,
                    "tf32" if dtype == "fp32" else dtype,  # PyTorch's default for convolutions
                    (x, w),
                    partial(_convolve, stride, memory_format),
                )


def _convolve(stride: int, memory_format: Any, x: Any, w: Any) -> Any:
    x, w = x.to(memory_format=memory_format), w.to(memory_format=memory_format)
    groups = x.shape[1] // w.shape[1]
    return torch.nn.functional.conv2d(x, w, None, stride, w.shape[2] // 2, groups=groups)


def _attention() -> Iterator[_Operation]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend(kind: SDPBackend, q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(kind):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    kinds = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": getattr(SDPBackend, "CUDNN_ATTENTION", None),
    }
    for dtype in ("bf16", "fp16"):
        for name, kind in kinds.items():
            if kind is not None:
                yield _Operation(
                    # Batch, heads, tokens, features of a head.
                    f"attention {dtype} {name}", dtype, dtype, ((4, 8, 512, 64),) * 3,
                    partial(attend, kind), reference=partial(attend, SDPBackend.MATH),
                )  # fmt: skip


def _norms() -> Iterator[_Operation]:
    rows, features, channels = 4096, 1024, (128,)
    for dtype in ("bf16", "fp16", "fp32"):
        yield _Operation(
            f"layer norm {dtype}", dtype, dtype, ((rows, features), (features,), (features,)),
            lambda x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b),
        )  # fmt: skip
        yield _Operation(
            f"batch norm {dtype}", dtype, dtype, ((16, 128, 28, 28), channels, channels),
            lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True),
        )  # fmt: skip


def _others() -> Iterator[_Operation]:
    functions: dict[str, tuple[tuple[Shape, ...], Callable[..., Any]]] = {
        "fft": (
            ((16, 1 << 16),) * 2,
            lambda real, imaginary: torch.fft.fft(torch.complex(real, imaginary)),
        ),
        "sort": (((1 << 22,),), lambda x: x.sort()[0]),
        # Sizes, so that nothing cancels.
        "sum": (((1 << 24,),), lambda x: x.abs().sum()),
        "cumsum": (((1 << 20,),), lambda x: x.abs().cumsum(0)),
    }
    for name, (inputs, function) in functions.items():
        yield _Operation(f"{name} fp32", "fp32", "fp32", inputs, function, gradients=False)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="compute the reference")
    what.add_argument("--reference", type=Path, metavar="FILE", help="compare with it")
    what.add_argument("--libraries", action="store_true", help="only say their versions")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="as small as possible: a smoke test")
    options = parser.parse_args()
    if options.libraries:
        print(json.dumps(_libraries()))
        return
    noise = _Noise(options.device, 1 << (20 if options.tiny else 26))
    every = {p.name: partial(_count_wrong_rows, p, noise) for p in products(options.tiny)}
    operations = _operations(options.tiny)
    every |= {o.name: partial(_compute, o, noise) for o in operations}
    if options.write:
        tried = {name: _attempt(value_of) for name, value_of in every.items()}
        values = {name: value for name, (value, refusal) in tried.items() if not refusal}
        skipped = {name: refusal for name, (_, refusal) in tried.items() if refusal}
        # What is right: of operations in float64, where there is that.
        right = dict.fromkeys(every, 0)
        for operation in operations:
            wide, refusal = _attempt(partial(_compute, operation, noise, wide=True))
            right[operation.name] = values.get(operation.name) if refusal else wide
        reference = {"values": {name: right[name] for name in values}, "skipped": skipped}
        options.write.write_text(json.dumps(reference))
    else:
        reference = json.loads(options.reference.read_text())
        values = {name: every[name]() for name in reference["values"]}
    on_gpu = options.device != "cpu"
    answer = {
        "units": torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else None,
        "libraries": _libraries(),
        "operations": list(values),
        "wrong": wrong_names(values, reference["values"], {o.name: o.rounding for o in operations}),
        "skipped": reference["skipped"],
        "values": values,
    }
    print(json.dumps(answer))


def wrong_names(
    values: dict[str, Any], wanted: dict[str, Any], rounding: dict[str, str]
) -> list[str]:
    """Operations whose values are not those of the reference, in their order."""
    return [
        name
        for name, right in wanted.items()
        if not (
            same(values[name], right, rounding[name]) if name in rounding else values[name] == right
        )
    ]


def _libraries() -> dict[str, str]:
    """Versions of PyTorch and of the libraries it computes with; needs no GPU."""
    cublas, cudnn = _cublas_version(), torch.backends.cudnn.version()
    versions = {"torch": torch.__version__, "cublas": cublas, "cudnn": cudnn}
    return {name: str(version) for name, version in versions.items() if version}


def _cublas_version() -> str:
    """As cublasGetVersion says it, such as 130100; empty where cuBLAS is not loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    if not (mapped := [line for line in lines if "/libcublas.so" in line]):
        return ""
    library = ctypes.CDLL(mapped[0].split(maxsplit=5)[-1])
    numbers = [ctypes.c_int() for _ in range(3)]
    # libraryPropertyType: major, minor, patch (library_types.h).
    for kind, number in enumerate(numbers):
        library.cublasGetProperty(kind, ctypes.byref(number))
    major, minor, patch = (number.value for number in numbers)
    return str(major * 10000 + minor * 100 + patch)


if __name__ == "__main__":
    _main()
