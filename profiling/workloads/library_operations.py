"""The operations of `library_check.py` that are no plain matrix products."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import library_cases as cases
from library_cases import Shape
from library_tensors import Noise, fingerprint, poison, torch_type


@dataclass(frozen=True)
class Operation:
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


def operations(tiny: bool = False) -> list[Operation]:
    """All operations that are no plain matrix products."""
    every = [*_convolutions(), *_attention(), *_norms(), *_others()]
    return [_cut(operation) for operation in every] if tiny else every


def compute(operation: Operation, noise: Noise, wide: bool = False) -> list[list[float]]:
    """Fingerprints of the results, as JSON has them; `wide`: of the same inputs in float64.

    Raises:
        RuntimeError: there is no such operation here.
    """
    function = (wide and operation.reference) or operation.function
    inputs = [
        _input(noise, shape, seed, operation, wide)
        for seed, shape in enumerate(operation.inputs, 1)
    ]
    poison(noise.device)
    found = function(*inputs)
    if not operation.gradients:
        return [fingerprint(found, noise)]
    above = noise(*found.shape, seed=9).to(torch_type(operation.dtype)).to(found.dtype)
    poison(noise.device)
    import torch

    return [fingerprint(t, noise) for t in (found, *torch.autograd.grad(found, inputs, above))]


def _input(noise: Noise, shape: Shape, seed: int, operation: Operation, wide: bool) -> Any:
    values = noise(*shape, seed=seed).to(torch_type(operation.dtype))
    values = values.double() if wide else values.clone()
    return values.requires_grad_(operation.gradients)


def _cut(operation: Operation) -> Operation:
    return replace(operation, inputs=tuple(cases.cut(shape) for shape in operation.inputs))


def _convolutions() -> Iterator[Operation]:
    import torch

    layouts = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
    for dtype in ("bf16", "fp16", "fp32"):
        for size, (x, w, stride) in cases.CONVOLUTIONS.items():
            for layout, memory_format in layouts.items():
                yield Operation(
                    f"convolution {dtype} {size} {layout}",
                    dtype,
                    "tf32" if dtype == "fp32" else dtype,  # PyTorch's default for convolutions
                    (x, w),
                    _convolution(stride, memory_format),
                )


def _convolution(stride: int, memory_format: Any) -> Callable[..., Any]:
    import torch

    def convolve(x: Any, w: Any) -> Any:
        x, w = x.to(memory_format=memory_format), w.to(memory_format=memory_format)
        groups = x.shape[1] // w.shape[1]
        return torch.nn.functional.conv2d(x, w, None, stride, w.shape[2] // 2, groups=groups)

    return convolve


def _attention() -> Iterator[Operation]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def attend(kind: SDPBackend) -> Callable[..., Any]:
        def function(q: Any, k: Any, v: Any) -> Any:
            with sdpa_kernel(kind):
                return scaled_dot_product_attention(q, k, v, is_causal=True)

        return function

    kinds = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": getattr(SDPBackend, "CUDNN_ATTENTION", None),
    }
    for dtype in ("bf16", "fp16"):
        for name, kind in kinds.items():
            if kind is not None:
                yield Operation(
                    f"attention {dtype} {name}", dtype, dtype, (cases.ATTENTION,) * 3,
                    attend(kind), reference=attend(SDPBackend.MATH),
                )  # fmt: skip


def _norms() -> Iterator[Operation]:
    from torch.nn.functional import batch_norm, layer_norm

    def over_batch(x: Any, w: Any, b: Any) -> Any:
        return batch_norm(x, None, None, w, b, training=True)

    rows, features = cases.LAYER_NORM
    channels = (cases.BATCH_NORM[1],)
    for dtype in ("bf16", "fp16", "fp32"):
        yield Operation(
            f"layer norm {dtype}", dtype, dtype, ((rows, features), (features,), (features,)),
            lambda x, w, b: layer_norm(x, w.shape, w, b),
        )  # fmt: skip
        yield Operation(
            f"batch norm {dtype}", dtype, dtype, (cases.BATCH_NORM, channels, channels), over_batch
        )


def _others() -> Iterator[Operation]:
    import torch

    functions: dict[str, tuple[tuple[Shape, ...], Callable[..., Any]]] = {
        "fft": (
            (cases.FFT,) * 2,
            lambda real, imaginary: torch.fft.fft(torch.complex(real, imaginary)),
        ),
        "sort": ((cases.SORT,), lambda x: x.sort()[0]),
        # Sizes, so that nothing cancels.
        "sum": ((cases.SUM,), lambda x: x.abs().sum()),
        "cumsum": ((cases.CUMSUM,), lambda x: x.abs().cumsum(0)),
    }
    for name, (inputs, function) in functions.items():
        yield Operation(f"{name} fp32", "fp32", "fp32", inputs, function, gradients=False)
