"""Points of `advisor power input` as a file of JSON Lines: read, written, and those bundled."""

import hashlib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from advisor.errors import InputError
from advisor.formats.wire import WireError, read, write
from advisor.wire.input_power import FEATURES, InputPoint

BUNDLED = "inputs.jsonl"
"""Among what comes with the package."""


def read_input_points(path: Path) -> tuple[InputPoint, ...]:
    """The points of a file of JSON Lines.

    Raises:
        InputError: it cannot be read, or a line is no point, or one that cannot be; says which.
    """
    with InputError.instead_of(
        OSError, f"{path} cannot be read", fix="give a file that advisor power train wrote"
    ):
        text = path.read_bytes()
    return _points(text, str(path))


def bundled_input_points() -> tuple[InputPoint, ...]:
    """Points measured on real cards that come with the package; none where there are none.

    Raises:
        InputError: the installation is damaged.
    """
    file = resources.files("advisor_data") / "bundled" / BUNDLED
    return _points(file.read_bytes(), f"bundled {BUNDLED}") if file.is_file() else ()


def input_points_text(points: Iterable[InputPoint]) -> bytes:
    """Points as a file has them; the same points in whatever order give the same bytes."""
    return "".join(f"{line}\n" for line in sorted(map(write, points))).encode()


def input_points_sha256(points: Iterable[InputPoint]) -> str:
    """A hash of points that does not depend on their order."""
    return hashlib.sha256(input_points_text(points)).hexdigest()


def _points(text: bytes, name: str) -> tuple[InputPoint, ...]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return tuple(_point(line, f"{name}, line {number}") for number, line in lines)


def _point(line: bytes, name: str) -> InputPoint:
    try:
        point = read(InputPoint, line)
    except WireError as error:
        raise InputError(f"{name}: {error.what}", why=error.why, fix=error.fix) from error
    if odd := set(FEATURES) ^ point.features.keys():
        raise InputError(f"{name}: features {', '.join(sorted(odd))} are missing or unknown")
    outside = [f"{n} is {v:g}" for n, v in point.features.items() if not 0 <= v <= 1]
    if not 0 < point.idle_w < point.power_w:
        outside.append(f"power_w is {point.power_w:g} and idle_w {point.idle_w:g}")
    positive = ("flop_per_s", "clock_mhz", "reference_w", "units")
    numbers = {n: getattr(point, n) for n in positive}
    outside += [f"{n} is {x:g}" for n, x in numbers.items() if x is not None and x <= 0]
    if min(point.shape) < 1:
        outside.append(f"shape is {point.shape}")
    if outside:
        raise InputError(f"{name}: {', '.join(outside)}", fix="leave the point out")
    return point
