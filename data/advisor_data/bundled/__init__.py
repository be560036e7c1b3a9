"""What comes with the package, which points are fit to learn from, and the host's own checks.

Points, tables of others and inputs are bundled alone; checks of counts, power sensors and kernels
are those that were measured on this host, then the bundled ones. Each reader raises a StoreError
where a file cannot be read, or the installation lacks it or has a damaged one.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeAlias

from advisor.core.records import DOUBTFUL, PairPoint, SoloPoint, grouped
from advisor.errors import InputError, StoreError, placed
from advisor.formats.rows import P, from_row, json_row
from advisor.formats.wire import RecordFolder, T, read, slug, write
from advisor.validity.safe_counts import (
    CHECKS,
    CheckedCounts,
    check_for,
    wrong_elsewhere,
)
from advisor.validity.sensor_record import SENSOR_RECORDS, SensorRecord
from advisor.wire.power import FEATURES, InputPoint, KernelReport

GPU_MODEL = "NVIDIA H200"
"""What most bundled points were measured on: taken if no GPU model is given."""


def bundled_solo_points(jobs: Iterable[str] | None = None) -> list[SoloPoint]:
    """Solo points measured on real GPUs: all, or of some jobs, in a fraction of the time."""
    return _points("solo.jsonl", SoloPoint, jobs)


def bundled_pair_points(jobs: Iterable[str] | None = None) -> list[PairPoint]:
    """Pair points measured on real GPUs, flagged ones among them: see `advisor_data.bundled`.

    With `jobs` only points of these jobs alone, which takes a fraction of the time.
    """
    return _points("pairs.jsonl", PairPoint, jobs)


def bundled_reference_points(jobs: Iterable[str] | None = None) -> list[SoloPoint]:
    """Jobs alone at 100 %, measured in the campaigns of the bundled pairs: their references.

    They are no profiles: what looks for those reads `bundled_solo_points` alone.
    """
    return _points("references.jsonl", SoloPoint, jobs)


def bundled_set_points(jobs: Iterable[str] | None = None) -> list[PairPoint]:
    """Two to seven jobs together: without limits, with one, or time-sliced, on several cards.

    How they were measured: docs/measurements/sets.md. `jobs` is as in `bundled_pair_points`.
    """
    return _points("sets.jsonl", PairPoint, jobs)


def bundled_points_together(jobs: Iterable[str] | None = None) -> list[PairPoint]:
    """Pairs at all splits, and sets of two to seven jobs."""
    names = None if jobs is None else list(jobs)
    return [*bundled_pair_points(names), *bundled_set_points(names)]


def bundled_set_references(jobs: Iterable[str] | None = None) -> list[SoloPoint]:
    """The jobs of the bundled sets alone, measured by the same run on the same card."""
    return _points("set_references.jsonl", SoloPoint, jobs)


def bundled_table(name: str) -> str:
    """A table that others measured, as CSV: data/advisor_data/bundled/public/README.md."""
    with whole(file := f"public/{name}.csv.gz"):
        return gzip.decompress((_bundled() / file).read_bytes()).decode()


def _points(name: str, kind: type[P], jobs: Iterable[str] | None) -> list[P]:
    with whole(name):
        lines = (_bundled() / name).read_bytes().splitlines()
        if jobs is not None:
            # To look for a text is a hundred times as fast as to read the line.
            keys = [b'"job": ' + json.dumps(job).encode() for job in jobs]
            lines = [line for line in lines if any(key in line for key in keys)]
            lines = [line for line in lines if sum(map(line.count, keys)) == line.count(b'"job": ')]
        return [from_row(kind, json_row(line)) for line in lines]


def whole(name: str) -> AbstractContextManager[None]:
    """Says of a file that came with the package, in the block that reads it, that it is damaged."""
    what = f"advisor_data/bundled/{name} is missing or damaged"
    return StoreError.instead_of(
        (OSError, EOFError, InputError, zlib.error), what, fix="install advisor again"
    )


def select(points: Iterable[PairPoint]) -> tuple[list[PairPoint], dict[str, int]]:
    """The points that passed every cross-check, and how many were left out under each flag.

    One with several flags of `DOUBTFUL` is counted under the first.
    """
    by_doubt = grouped(points, lambda point: next(filter(DOUBTFUL.__contains__, point.flags), None))
    return by_doubt.pop(None, []), {flag: len(points) for flag, points in by_doubt.items() if flag}


ChecksStamp: TypeAlias = tuple[tuple[str, int, int], ...]
"""Name, time of change and size of each file of a check."""


def checked_counts(
    home: Path, gpu_model: str, units_total: int | None = None
) -> CheckedCounts | None:
    """What the check of a GPU model found; None where there was none.

    Counts at which other models of as many SMs were wrong count as wrong here too, in operations
    that were not tried here (`advisor.validity.safe_counts.wrong_elsewhere`). Where the SMs of the
    GPU are known, a check of another number is none of it.

    Raises:
        StoreError: a file of a check cannot be read, so unsafe counts are unknown.
    """
    checks = all_checks(home)
    check = check_for(gpu_model, checks)
    if check is None or units_total not in (None, check.units_total):
        return None
    return replace(check, wrong={**wrong_elsewhere(gpu_model, checks), **check.wrong})


def checks_stamp(home: Path) -> ChecksStamp:
    """What differs after a check by any process; costs no reading.

    Raises:
        StoreError: the folder cannot be looked at.
    """
    with StoreError.instead_of(OSError, f"{home / CHECKS.name} cannot be read"):
        files = sorted((home / CHECKS.name).glob("*.json"))
        return tuple(
            (path.name, (state := path.stat()).st_mtime_ns, state.st_size) for path in files
        )


def all_checks(home: Path) -> list[CheckedCounts]:
    """The checks that were made on this host, then those that come with the package.

    Raises:
        StoreError: a stored file cannot be read.
    """
    return [*CHECKS.read(home), *bundled_checks()]


def bundled_checks() -> list[CheckedCounts]:
    """Checks made on real GPUs that come with the package."""
    return [CHECKS.parse(file.read_bytes()) for file in _json_files("checks")]


KERNEL_REPORTS = RecordFolder(
    "kernels", "advisor power kernel", lambda text: read(KernelReport, text, tolerant=True)
)
"""Of this host, by operation and conditions, beside the runs that each was made of."""

KERNEL_TABLE = "kernels.jsonl"


def all_sensors(home: Path) -> list[SensorRecord]:
    """Records that were made on this host, then those that come with the package."""
    return [*SENSOR_RECORDS.read(home), *bundled_sensors()]


def all_kernels(home: Path) -> list[KernelReport]:
    """Kernels that were measured on this host, then those that come with the package."""
    return [*KERNEL_REPORTS.read(home), *bundled_kernels()]


def bundled_sensors() -> list[SensorRecord]:
    """Records of real cards that come with the package; none where there are none."""
    return [_parsed(SensorRecord, f.read_bytes(), f.name) for f in _json_files("sensors")]


def bundled_recording(record: SensorRecord) -> bytes:
    """The recording that a bundled record was made of, for `advisor power sensor --trace`."""
    name = f"{bundled_name(record)}.jsonl.gz"
    with whole(name):
        return gzip.decompress((_bundled() / "sensors" / name).read_bytes())


def bundled_kernels() -> list[KernelReport]:
    """Kernels measured on real cards that come with the package; none where there are none."""
    file = _bundled() / "kernels" / KERNEL_TABLE
    lines = file.read_bytes().splitlines() if file.is_file() else ()
    return [_parsed(KernelReport, line, KERNEL_TABLE) for line in lines]


def bundled_name(record: SensorRecord) -> str:
    """What the files of a bundled record are called: GPU model, card and driver."""
    return slug(record.gpu_model, record.gpu_uuid.removeprefix("GPU-")[:8], record.driver)


def _bundled() -> Traversable:
    return resources.files("advisor_data") / "bundled"


def _json_files(folder: str) -> list[Traversable]:
    """By name; none where the folder is not there."""
    inside = _bundled() / folder
    entries = inside.iterdir() if inside.is_dir() else ()
    return sorted((file for file in entries if file.name.endswith(".json")), key=str)


def _parsed(kind: type[T], text: bytes, name: str) -> T:
    with whole(name):
        return read(kind, text, name=name, tolerant=True)


INPUTS = "inputs.jsonl"
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
    return _input_points(text, str(path))


def bundled_input_points() -> tuple[InputPoint, ...]:
    """Points measured on real cards that come with the package; none where there are none.

    Raises:
        InputError: the installation is damaged.
    """
    file = _bundled() / INPUTS
    return _input_points(file.read_bytes(), f"bundled {INPUTS}") if file.is_file() else ()


def input_points_text(points: Iterable[InputPoint]) -> bytes:
    """Points as a file has them; the same points in whatever order give the same bytes."""
    return "".join(f"{line}\n" for line in sorted(map(write, points))).encode()


def input_points_sha256(points: Iterable[InputPoint]) -> str:
    """A hash of points that does not depend on their order."""
    return hashlib.sha256(input_points_text(points)).hexdigest()


def _input_points(text: bytes, name: str) -> tuple[InputPoint, ...]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return tuple(_input_point(line, f"{name}, line {number}") for number, line in lines)


def _input_point(line: bytes, name: str) -> InputPoint:
    with placed(name):
        point = read(InputPoint, line)
    if odd := set(FEATURES) ^ point.features.keys():
        raise InputError(f"{name}: features {', '.join(sorted(odd))} are missing or unknown")
    outside = [f"{n} is {v:g}" for n, v in point.features.items() if not 0 <= v <= 1]
    if not 0 < point.idle_w < point.power_w:
        outside.append(f"power_w is {point.power_w:g} and idle_w {point.idle_w:g}")
    numbers = {n: getattr(point, n) for n in ("flop_per_s", "clock_mhz", "reference_w", "units")}
    outside += [f"{n} is {x:g}" for n, x in numbers.items() if x is not None and x <= 0]
    if min(point.shape) < 1:
        outside.append(f"shape is {point.shape}")
    if outside:
        raise InputError(f"{name}: {', '.join(outside)}", fix="leave the point out")
    return point
