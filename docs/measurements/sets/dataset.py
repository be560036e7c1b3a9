"""The measured sets as a data set of its own: tables, card, Croissant file and checksums.

    .venv/bin/python docs/measurements/sets/dataset.py build/dataset

Three CSV files: windows in which two to seven jobs shared a GPU, the jobs of each, and each job
alone on the same host. Nothing is uploaded. Croissant 1.0: docs.mlcommons.org/croissant.
"""

import argparse
import csv
import dataclasses
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import advisor
from advisor.core.records import PairPoint, PointPart, SoloPoint
from advisor.formats.rows import JOBS, column_types, to_row
from advisor_data.bundled import bundled_set_points, bundled_set_references

PRIVATE = {"host", "written_by", "repeat", "source", "tool_version", "reported"}
LICENCE = "https://creativecommons.org/licenses/by/4.0/"
FILES = {
    "windows.csv": "Windows in which two to seven jobs shared a GPU, one a row",
    "jobs.csv": "Jobs of each window, one a row",
    "alone.csv": "Windows of each job alone on the whole GPU, of the same run",
}
TYPES = {float: "sc:Float", int: "sc:Integer", bool: "sc:Boolean", str: "sc:Text", tuple: "sc:Text"}
CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo", "citeAs": "cr:citeAs", "column": "cr:column",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"}, "extract": "cr:extract",
    "field": "cr:field", "fileObject": "cr:fileObject", "recordSet": "cr:recordSet",
    "source": "cr:source",
}  # fmt: skip
CARD = """\
---
license: cc-by-4.0
pretty_name: Sets of jobs that share an H100 or H200, with power
tags: [gpu, energy, power, mps, colocation, scheduling]
configs:
{configs}
---

# Sets of jobs that share an H100 or H200, with power

{windows} windows of {sets} sets of two to seven jobs on {cards} cards ({models}):
{uncapped} under MPS without limits, {mps} with SM limits, {sliced} time-sliced; and
{alone} windows of their jobs alone. Each window has the rate of each job, the p99 of servers,
the power of the card and its activity counters. Jobs are PyTorch trainings, inference and
servers, and single kernels.

The speed of a job is its rate in a window over its rate in `alone.csv` of the same `run` and
card. A window opens when rates and power are flat. `power_w` is the mean of NVML's readings.
Flags name what was wrong with a window: those with `failed` or `results-differ` have no valid
rates, `throttled` is usual at the power limit, and in windows with `shared-core` the jobs had
one CPU core in common.

**Limits**: virtual machines of one provider, one driver, jobs that their authors wrote. Rates
of launch-bound jobs depend on the CPU of the host.

Made by `advisor` {version}. Licence: [CC BY 4.0]({licence}). Checksums: `SHA256SUMS`.
"""


class Column(NamedTuple):
    """A published column."""

    name: str
    meaning: str
    unit: str
    kind: type


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    points = bundled_set_points()
    rows = [(point.point_id, to_row(point)) for point in points]
    jobs = [{"window": window, **part} for window, row in rows for part in row.pop(JOBS)]
    windows = [{"window": window, **row} for window, row in rows]
    alone = [to_row(point) for point in bundled_set_references()]
    key = Column("window", "key of the window, which jobs.csv names", "", str)
    published = {
        "windows.csv": write(folder / "windows.csv", windows, [key, *columns(PairPoint)]),
        "jobs.csv": write(folder / "jobs.csv", jobs, [key, *columns(PointPart)]),
        "alone.csv": write(folder / "alone.csv", alone, columns(SoloPoint)),
    }
    modes = Counter(point.mode for point in points)
    card = CARD.format(
        configs="\n".join(f"  - {{config_name: {n[:-4]}, data_files: {n}}}" for n in FILES),
        windows=len(points), sets=len({tuple(p.job for p in point.parts) for point in points}),
        cards=len({point.gpu_uuid for point in points}), alone=len(alone), licence=LICENCE,
        models=" and ".join(sorted({point.gpu_model for point in points})),
        uncapped=modes["uncapped"], mps=modes["mps"], sliced=modes["time-sliced"],
        version=advisor.__version__,
    )  # fmt: skip
    (folder / "README.md").write_text(card, "utf-8")
    made = max(point.started_at for point in points)[:10]
    text = json.dumps(croissant(folder, published, made), indent=1)
    (folder / "croissant.json").write_text(text + "\n", "utf-8")
    names = (*FILES, "README.md", "croissant.json")
    sums = "".join(f"{digest(folder / name)}  {name}\n" for name in names)
    (folder / "SHA256SUMS").write_text(sums, "utf-8")
    print(f"{folder}: {len(windows)} windows, {len(jobs)} jobs in them, {len(alone)} alone")


def columns(kind: type[PairPoint | PointPart | SoloPoint]) -> list[Column]:
    """Columns of a record that say nothing of who measured it."""
    types = column_types(kind)
    return [
        Column(f.name, f.metadata["meaning"], f.metadata["unit"], types[f.name][0])
        for f in dataclasses.fields(kind)
        if "meaning" in f.metadata and f.name not in PRIVATE
    ]


def write(path: Path, rows: list[dict[str, Any]], kept: list[Column]) -> list[Column]:
    """Write a table; returns its columns, without those that are empty in all rows."""
    kept = [column for column in kept if any(row[column.name] not in (None, []) for row in rows)]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(column.name for column in kept)
        for row in rows:
            flags = {"flags": ";".join(row["flags"])} if "flags" in row else {}
            table.writerow((row | flags)[column.name] for column in kept)
    return kept


def croissant(folder: Path, published: dict[str, list[Column]], made: str) -> dict[str, Any]:
    """The Croissant description of the tables in the folder, the last of which is of `made`."""
    return {
        "@context": CONTEXT, "@type": "sc:Dataset", "name": "gpu-sharing-sets",
        "conformsTo": "http://mlcommons.org/croissant/1.0", "license": LICENCE,
        "version": advisor.__version__,
        "description": "Rates, p99s and power of sets of jobs that share an H100 or H200.",
        "datePublished": made,
        "creator": {"@type": "sc:Organization", "name": "The developers of advisor"},
        "citeAs": "@misc{gpu-sharing-sets, title={Sets of jobs that share an H100 or H200, "
        f"with power}}, author={{The developers of advisor}}, year={{{made[:4]}}}}}",
        "distribution": [
            {"@type": "cr:FileObject", "@id": name, "name": name, "description": FILES[name],
             "contentUrl": name, "encodingFormat": "text/csv",
             "contentSize": f"{(folder / name).stat().st_size} B", "sha256": digest(folder / name)}
            for name in published
        ],
        "recordSet": [
            {"@type": "cr:RecordSet", "@id": name[:-4], "name": name[:-4], "field": [
                {"@type": "cr:Field", "@id": f"{name[:-4]}/{column.name}", "name": column.name,
                 "description": column.meaning + (f" ({column.unit})" if column.unit else ""),
                 "dataType": TYPES[column.kind],
                 "source": {"fileObject": {"@id": name}, "extract": {"column": column.name}}}
                for column in kept
            ]}
            for name, kept in published.items()
        ],
    }  # fmt: skip


def digest(path: Path) -> str:
    """Its SHA-256 in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
