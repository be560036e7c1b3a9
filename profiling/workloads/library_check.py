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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from library_cases import ResultFingerprint, products, same
from library_operations import compute, operations
from library_products import count_wrong_rows
from library_tensors import Noise, attempt

BANK, TINY_BANK = 1 << 26, 1 << 20


def main() -> None:
    """The command line."""
    options = _options()
    if options.libraries:
        print(json.dumps(libraries()))
        return
    noise = Noise(options.device, TINY_BANK if options.tiny else BANK)
    if options.write:
        values, reference = make_reference(noise, options.tiny)
        options.write.write_text(json.dumps(reference))
    else:
        reference = json.loads(options.reference.read_text())
        every = _every(noise, options.tiny)
        values = {name: every[name]() for name in reference["values"]}
    print(json.dumps(_answer(values, reference, options)))


def make_reference(noise: Noise, tiny: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is computed on the whole GPU, and what is right: in float64, where there is that."""
    values: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for name, value_of in _every(noise, tiny).items():
        value, refusal = attempt(value_of)
        if refusal:
            skipped[name] = refusal
        else:
            values[name] = value
    wanted: dict[str, Any] = {product.name: 0 for product in products(tiny)}
    for operation in operations(tiny):
        wide, refusal = attempt(partial(compute, operation, noise, wide=True))
        wanted[operation.name] = values.get(operation.name) if refusal else wide
    return values, {"values": {name: wanted[name] for name in values}, "skipped": skipped}


def wrong_names(
    values: dict[str, Any], wanted: dict[str, Any], rounding: dict[str, str]
) -> list[str]:
    """Operations whose values are not those of the reference, in their order."""
    return [name for name in wanted if not _right(values[name], wanted[name], rounding.get(name))]


def libraries() -> dict[str, str]:
    """Versions of PyTorch and of the libraries it computes with; needs no GPU."""
    import torch

    found = {"torch": torch.__version__}
    if cublas := _cublas_version():
        found["cublas"] = cublas
    if cudnn := torch.backends.cudnn.version():
        found["cudnn"] = str(cudnn)
    return found


def _right(value: Any, wanted: Any, rounding: str | None) -> bool:
    if rounding is None:
        return value == wanted
    found, right = (
        [ResultFingerprint(*numbers) for numbers in prints] for prints in (value, wanted)
    )
    return same(found, right, rounding)


def _every(noise: Noise, tiny: bool) -> dict[str, Callable[[], Any]]:
    """By name, what computes each: the number of wrong rows, or fingerprints."""
    rows = {p.name: partial(count_wrong_rows, p, noise) for p in products(tiny)}
    return rows | {o.name: partial(compute, o, noise) for o in operations(tiny)}


def _answer(
    values: dict[str, Any], reference: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    rounding = {o.name: o.rounding for o in operations(options.tiny)}
    return {
        "units": _units(options.device),
        "libraries": libraries(),
        "operations": list(values),
        "wrong": wrong_names(values, reference["values"], rounding),
        "skipped": reference["skipped"],
        "values": values,
    }


def _units(device: str) -> int | None:
    import torch

    if device == "cpu":
        return None
    return torch.cuda.get_device_properties(0).multi_processor_count


def _cublas_version() -> str:
    """As cublasGetVersion says it, such as 130100; empty where cuBLAS is not loaded."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    paths = [line.split(maxsplit=5)[-1] for line in maps if "/libcublas.so" in line]
    if not paths:
        return ""
    library = ctypes.CDLL(paths[0])
    numbers = [ctypes.c_int() for _ in range(3)]
    # libraryPropertyType: major, minor, patch (library_types.h).
    for kind, number in enumerate(numbers):
        library.cublasGetProperty(kind, ctypes.byref(number))
    major, minor, patch = (number.value for number in numbers)
    return str(major * 10000 + minor * 100 + patch)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="compute the reference")
    what.add_argument("--reference", type=Path, metavar="FILE", help="compare with it")
    what.add_argument("--libraries", action="store_true", help="only say their versions")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="as small as possible: a smoke test")
    return parser.parse_args()


if __name__ == "__main__":
    main()
