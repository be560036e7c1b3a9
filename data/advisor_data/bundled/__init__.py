"""The measurements that come with the package, and which of them are fit to learn from.

Each reader raises a StoreError where the installation lacks its file, or that is damaged.
"""

import gzip
import json
import zlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from importlib import resources

from advisor.core.records import DOUBTFUL, PairPoint, SoloPoint, grouped
from advisor.errors import InputError, StoreError
from advisor.formats.rows import P, from_row, json_row

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
        packed = resources.files("advisor_data") / "bundled" / file
        return gzip.decompress(packed.read_bytes()).decode()


def _points(name: str, kind: type[P], jobs: Iterable[str] | None) -> list[P]:
    with whole(name):
        lines = (resources.files("advisor_data") / "bundled" / name).read_bytes().splitlines()
        if jobs is not None:
            # To look for a text is a hundred times as fast as to read the line.
            keys = [b'"job": ' + json.dumps(job).encode() for job in jobs]
            lines = [line for line in lines if any(key in line for key in keys)]
            lines = [line for line in lines if sum(map(line.count, keys)) == line.count(b'"job": ')]
        return [from_row(kind, json_row(line)) for line in lines]


def whole(name: str) -> AbstractContextManager[None]:
    """Says of a file that came with the package, in the block that reads it, that it is damaged."""
    what = f"advisor_data/bundled/{name} is missing or damaged"
    caught = (OSError, EOFError, InputError, zlib.error)
    return StoreError.instead_of(caught, what, fix="install advisor again")


def select(points: Iterable[PairPoint]) -> tuple[list[PairPoint], dict[str, int]]:
    """The points that passed every cross-check, and how many were left out under each flag.

    One with several flags of `DOUBTFUL` is counted under the first.
    """
    by_doubt = grouped(points, lambda point: next(filter(DOUBTFUL.__contains__, point.flags), None))
    kept = by_doubt.pop(None, [])
    return kept, {flag: len(points) for flag, points in by_doubt.items() if flag}
