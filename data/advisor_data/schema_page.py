"""The page docs/schema.md, made by `python -m advisor_data.schema_page > docs/schema.md`."""

import dataclasses

from advisor.records import SCHEMA_VERSION, Counters, SoloPoint
from advisor.rows import column_types

_TYPE_NAMES = {str: "text", float: "number", int: "whole number", bool: "true/false", tuple: "list"}

EXAMPLE_CSV = """\
job,gpu_model,gpu_uuid,share_percent,rate,rate_unit,power_w,window_s,started_at,run
resnet50-train,NVIDIA H200,GPU-9f3c,50,812.4,images,431.7,12,2026-01-31T12:00:00+00:00,night-7
resnet50-train,NVIDIA H200,GPU-9f3c,100,1190.2,images,,12,2026-01-31T12:00:20+00:00,night-7
"""

_BEFORE = f"""\
# Solo points

One row is one job alone at one share of one GPU, over one window. The names are the same in
Parquet, CSV, JSON lines, SQL (table `solo_points`) and `--json`. This is version {SCHEMA_VERSION} \
of the schema.

A value that was not measured is empty (`null` in JSON, Parquet and SQL), never 0.

| column | type | unit | needed | meaning |
|---|---|---|---|---|
"""

_AFTER = f"""
`flags` is empty for a window with nothing wrong; in CSV and SQL its words are joined by `;`. The
words are explained in [flags.md](flags.md).

## What makes two rows the same measurement

`run`, `job`, `gpu_uuid`, `share_percent` and `started_at`. Their hash is the `point_id` of the SQL
table. Bringing in a row that is already there changes nothing, so a file can be imported twice. Two
rows of one file that are the same measurement but differ in another column are refused.

## Points measured elsewhere

Write a CSV (UTF-8, comma, one header line) with the needed columns and as many others as you
have, in any order:

```csv
{EXAMPLE_CSV}```

    advisor data import points.csv

- `rate` is progress per second and `rate_unit` says of what; rates of one job must share a unit.
- `started_at` is ISO 8601 in UTC, with `Z` or `+00:00`.
- `run` is any name for the session; points of one run were measured under the same conditions.
- `.parquet` and `.jsonl` files work the same way. In them `flags` may be a list.

An unknown column, a value of the wrong type or out of range, or a missing needed value stops the
import before anything is stored; the message names the file, the line and the column. Parquet files
carry the version of the schema and are refused by an older advisor.

## Where points are kept

| address | what it is |
|---|---|
| none | `advisor.db` (SQLite) in the data folder; without SQLAlchemy, the folder `points` there |
| `sqlite:///FILE` | SQLite in one file of a local disk |
| `postgresql://USER@HOST/DATABASE` | PostgreSQL; `advisor data migrate` makes its tables |
| `files:DIR` | one append-only file of JSON lines per run |

SQLite files are upgraded when they are opened. On a network file system use `files:` or PostgreSQL:
SQLite's write-ahead log needs all its users on one host (https://www.sqlite.org/wal.html).
"""


def page() -> str:
    """The page as Markdown."""
    counters = {field.name for field in dataclasses.fields(Counters)}
    fields = sorted(dataclasses.fields(SoloPoint), key=lambda field: field.name in counters)
    return _BEFORE + "".join(map(_line, fields)) + _AFTER


def _line(field: "dataclasses.Field[object]") -> str:
    kind, _ = column_types()[field.name]
    needed = "yes" if field.default is dataclasses.MISSING else ""
    unit, meaning = field.metadata["unit"], field.metadata["meaning"]
    return f"| `{field.name}` | {_TYPE_NAMES[kind]} | {unit} | {needed} | {meaning} |\n"


if __name__ == "__main__":
    print(page(), end="")
