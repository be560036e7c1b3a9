"""The page docs/schema.md, made by `python -m advisor_data.schema_page > docs/schema.md`."""

import dataclasses
from collections.abc import Container

from advisor.core.records import (
    SCHEMA_VERSION,
    Counters,
    Measured,
    Observation,
    ObservedPart,
    PairPoint,
    Part,
    PointPart,
    Record,
    SoloPoint,
)
from advisor.formats.rows import column_types
from advisor_data.files import IDENTITY

_TYPE_NAMES = {str: "text", float: "number", int: "whole number", bool: "true/false", tuple: "list"}

SOLO_CSV = """\
job,gpu_model,gpu_uuid,share_percent,rate,rate_unit,power_w,idle_power_w,power_limit_w,memory_used_mib,\
window_s,started_at,run
my-train,NVIDIA H200,GPU-9f3c,10,200,images,250,75,700,9000,12,2026-01-31T12:00:00+00:00,night-7
my-train,NVIDIA H200,GPU-9f3c,50,800,images,400,75,700,9000,12,2026-01-31T12:00:20+00:00,night-7
my-train,NVIDIA H200,GPU-9f3c,100,1200,images,550,75,700,9000,12,2026-01-31T12:00:40+00:00,night-7
"""

PAIRS_CSV = """\
job_1,job_2,gpu_model,gpu_uuid,share_1_percent,share_2_percent,rate_1,rate_2,power_w,window_s,\
started_at,run,flags,error
gemm,triad,NVIDIA H200,GPU-9f3c,30,70,200,50,500,12,2026-01-31T13:00:00+00:00,night-7,,
gemm,triad,NVIDIA H200,GPU-9f3c,50,50,,,,12,2026-01-31T13:00:20+00:00,night-7,failed,gemm: no memory
"""

_BEFORE = f"""\
# Points

A solo point is one job alone at one share of one GPU; a pair point is two jobs or more together at
one split. Each is one row, over one window. An observation is what launched jobs really did, over
as long as they ran. The names are the same in Parquet, CSV, JSON lines, SQL and `--json`. This is
version {SCHEMA_VERSION} of the schema.

What belongs to one job of several stands in a list `jobs` of pair points and observations, one
object for each job. Flat formats have numbered columns instead.

| format | one job of several |
|---|---|
| JSON, JSON lines, Parquet, SQL | `"jobs": [{{"job": "gemm", "share_percent": 30, ...}}, ...]` |
| CSV, data frames | `job_1`, `share_1_percent`, `rate_1`, ..., `job_2`, ... |

The SQL tables are `solo_points`, `pair_points` and `observations`. A row holds the record as JSON
in `document`, without the values that were not measured, so a new column needs no migration. Beside
it stand the columns by which records are found: `point_id`, `jobs` (the names as a JSON list),
`gpu_model`, `run` (of an observation its `launch_id`) and `started_at_us` (since 1970).

A value that was not measured is empty (`null` in JSON and Parquet), never 0.
"""

_TABLE = """
| column | type | unit | needed | meaning |
|---|---|---|---|---|
"""

_IDENTITY = f"""
`flags` is empty for a window with nothing wrong; in CSV its words are joined by `;`. The
words are explained in [flags.md](flags.md).

The jobs of a pair point or an observation stand in the order of their names, so that each is
written in one way only. They may be brought in in any order.
A pair in which a job failed has no rates, the flag `failed`, and the reason in `error`.

## What makes two rows the same measurement

| point | columns |
|---|---|
| solo | {", ".join(f"`{name}`" for name in IDENTITY[SoloPoint])} |
| pair | {", ".join(f"`{name}`" for name in IDENTITY[PairPoint])} |
| observation | {", ".join(f"`{name}`" for name in IDENTITY[Observation])} |

`jobs.` are the columns of each job. Their hash is the `point_id` of the SQL tables. Bringing in a
row that is already there changes nothing, so a file can be imported twice. Two rows of one file
that are the same measurement but differ in another column are refused.
"""

_AFTER = f"""
## Points measured elsewhere

Write a CSV (UTF-8, comma, one header line) with the needed columns and as many others as you
have, in any order. The numbers of these examples are made up:

```csv
{SOLO_CSV}```

```csv
{PAIRS_CSV}```

    advisor data import points.csv pairs.csv
    advisor recommend my-train triad

A profile needs rate and power at 100 % and at one smaller share; answers about a job with 100 %
alone are estimated, if its point has `sm_active_percent` or `gpu_busy_percent`. The import says
which points make none and why, which of the power of the idle GPU, the power limit and the memory
is missing and what stands in for it, and where a profile takes the place of a bundled one. `advisor
recommend` takes a file without keeping it: `--profiles points.csv`. `advisor data delete` removes
points.

- Rows with a column `launch_id` are observations, others with `jobs` or `job_1` pairs; a file that
  `advisor` writes holds one kind.
- `rate` is progress per second and `rate_unit` says of what; a second unit of one job is refused.
- Shares are in percent: 50, not 0.5.
- `started_at` is ISO 8601 in UTC, with `Z` or `+00:00`.
- `run` is any name for the session; points of one run were measured under the same conditions.
- `.parquet` and `.jsonl` files work the same way. In them `flags` may be a list.
- A file has up to a million rows and 1 GiB.
- In CSV files that `advisor` writes, a text that begins with `=`, `+`, `-`, `@` or `'` has a `'`
  before it, so that no spreadsheet runs it; reading takes that away.

An unknown column, a value of the wrong type or out of range, or a missing needed value stops the
import before anything is stored; the message names the file, the line and the column. Parquet files
carry the kind of their points and the version of the schema; older ones are read as
far as their columns are those of today, newer ones refused.

`advisor data export FILE` writes solo points, with `--kind pairs` pair points, with `--kind
observations` what launched pairs did; `--job` and `--run` choose among them.

`advisor data delete --job JOB` removes stored solo points, of one GPU model with `--gpu-model`, of
one run with `--run`, other kinds with `--kind`. It says how many and asks; `--yes` does not ask.
Files and bundled points stay, so a bundled profile that was hidden is back.

For Python, `advisor.load_dataset("pairs")` gives the bundled points as a pandas frame with the flat
columns, `"sets"` those of more jobs; `"solo"` and `"references"` are the jobs alone, and a path
reads a file of your own. Of jobs together it has what each does alone on the whole GPU
(`solo_rate_1`, `solo_power_1_w`), its relative speed (`speed_1`) and `energy_saved`. These are no
columns of files: with `relative=False` the frame can be written and imported.

## Where points are kept

In SQLite or PostgreSQL: [state.md](state.md).
"""


def page() -> str:
    """The page as Markdown."""
    common = _names(Measured)
    counters = _names(Counters)
    return "".join(
        (
            _BEFORE,
            _section("Columns of solo points", SoloPoint, _names(SoloPoint) - common),
            _section("Columns of pair points", PairPoint, _names(PairPoint) - common),
            _section("Columns of each of their jobs", PointPart, _names(PointPart)),
            _section("Columns of both", SoloPoint, common - counters),
            _section("Counters, columns of both", SoloPoint, counters),
            _section("Columns of observations", Observation, _names(Observation)),
            _section("Columns of each of their jobs", ObservedPart, _names(ObservedPart)),
            _IDENTITY,
            _AFTER,
        )
    )


def _names(record: type[Counters] | type[Observation] | type[Part]) -> set[str]:
    return {field.name for field in dataclasses.fields(record)} - {"parts"}


def _section(title: str, kind: type[Record] | type[Part], names: Container[str]) -> str:
    fields = (field for field in dataclasses.fields(kind) if field.name in names)
    return f"\n## {title}\n{_TABLE}" + "".join(_line(field, kind) for field in fields)


def _line(field: "dataclasses.Field[object]", kind: type[Record] | type[Part]) -> str:
    value_type, _ = column_types(kind)[field.name]
    needed = "yes" if field.default is dataclasses.MISSING else ""
    unit, meaning = field.metadata["unit"], field.metadata["meaning"]
    return f"| `{field.name}` | {_TYPE_NAMES[value_type]} | {unit} | {needed} | {meaning} |\n"


if __name__ == "__main__":
    print(page(), end="")
