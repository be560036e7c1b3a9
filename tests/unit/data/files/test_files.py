"""Points as files to take away and to bring in."""

import csv
import dataclasses
import errno
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import made_up_input_points
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from made_up_bundle import FOLDER_OF_BUNDLED
from store_points import (
    FILES,
    any_observation,
    any_pair_point,
    any_point,
    observation,
    pair_point,
    point,
)
from unsafe_counts import checked_132, checked_with

from advisor.core.records import (
    DOUBTFUL,
    FLAGS,
    PARTS,
    SCHEMA_VERSION,
    Observation,
    PairPoint,
    Record,
    SoloPoint,
)
from advisor.errors import InputError, StoreError, install
from advisor.formats.rows import column_types, to_row
from advisor.formats.wire import write
from advisor.validity.safe_counts import keep_check
from advisor.validity.sensor_record import keep_record
from advisor_data import bundled, schema_page
from advisor_data.bundled import (
    KERNEL_REPORTS,
    all_checks,
    all_kernels,
    all_sensors,
    bundled_checks,
    bundled_input_points,
    bundled_kernels,
    bundled_name,
    bundled_pair_points,
    bundled_recording,
    bundled_reference_points,
    bundled_sensors,
    bundled_solo_points,
    checked_counts,
    checks_stamp,
    input_points_sha256,
    input_points_text,
    read_input_points,
    select,
)
from advisor_data.files import (
    KIND_KEY,
    VERSION_KEY,
    check_import,
    import_notes,
    read_points,
    write_points,
)
from advisor_data.lists import ProfileRow, profile_rows

SUFFIXES = (".parquet", ".csv", ".jsonl")
HEADER = "job,gpu_model,gpu_uuid,share_percent,rate,window_s,started_at,run"
PAIR_HEADER = (
    "job_1,job_2,gpu_model,gpu_uuid,share_1_percent,share_2_percent,rate_1,window_s,started_at,run"
)
PAIR_ROW = "gemm,sort,H200,GPU-1,30,70,12.5,5,2026-01-31T12:00:00Z,r1"
ROW = "gemm,H200,GPU-1,50,12.5,5,2026-01-31T12:00:00Z,r1"

arrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(
    max_examples=settings().max_examples // 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(records=[])
@given(
    records=st.lists(any_point, max_size=3, unique_by=lambda p: p.point_id)
    | st.lists(any_pair_point, max_size=3, unique_by=lambda p: p.point_id)
    | st.lists(any_observation, max_size=3, unique_by=lambda p: p.point_id)
)
def test_any_records_survive_a_file(tmp_path: Path, suffix: str, records: list[Any]) -> None:
    """In their order, with every column; the kind is found by these."""
    path = tmp_path / f"points{suffix}"
    write_points(path, records)
    assert read_points(path) == records


@pytest.mark.parametrize("kind", ["solo", "pairs", "observations"])
def test_files_that_were_written_once_are_read(tmp_path: Path, kind: str) -> None:
    """Each format says the same, and is written as it was read."""
    one, *others = (read_points(FILES / f"{kind}{suffix}") for suffix in SUFFIXES)
    assert len(one) >= 2
    assert all(other == one for other in others)
    for suffix in SUFFIXES:
        write_points(tmp_path / f"p{suffix}", one)
        assert read_points(tmp_path / f"p{suffix}") == one


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_two_kinds_do_not_go_into_one_file(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match="write a file for each kind"):
        write_points(tmp_path / f"p{suffix}", [point(), pair_point()])
    assert list(tmp_path.iterdir()) == []


def test_json_lines_of_all_kinds_are_read(tmp_path: Path) -> None:
    """Files of a node that were glued together are brought in as one."""
    records = [pair_point(1), point(1), observation(1)]
    rows = [to_row(record) for record in records]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_points(tmp_path / "p.jsonl") == records


@pytest.mark.parametrize(
    ("measured", "kind"),
    [(point(), b"solo"), (pair_point(), b"pair"), (observation(), b"observation")],
    ids=["solo", "pair", "observation"],
)
def test_parquet_says_its_units_kind_and_version(
    tmp_path: Path, measured: Record, kind: bytes
) -> None:
    """Somebody who opens the file elsewhere finds unit, meaning, kind and schema version in it."""
    write_points(tmp_path / "p.parquet", [measured])
    schema = parquet.read_schema(tmp_path / "p.parquet")
    said, power = schema.metadata, schema.field("power_w").metadata
    assert (said[VERSION_KEY], said[KIND_KEY]) == (str(SCHEMA_VERSION).encode(), kind)
    assert (power[b"unit"], bool(power[b"meaning"])) == (b"W", True)
    jobs = [] if isinstance(measured, SoloPoint) else ["jobs"]
    assert schema.names == [*jobs, *column_types(type(measured))]
    for name in jobs:
        part = schema.field(name).type.value_type
        assert [field.name for field in part] == list(column_types(PARTS[type(measured)]))


def test_parquet_of_the_first_version_is_read(tmp_path: Path) -> None:
    """It holds solo points, their columns in another order, and says no kind."""
    table = arrow.Table.from_pylist([to_row(point())]).replace_schema_metadata({VERSION_KEY: "1"})
    table = table.select(sorted(table.column_names))
    parquet.write_table(table, tmp_path / "p.parquet")
    assert read_points(tmp_path / "p.parquet") == [point()]


@pytest.mark.parametrize("version", [str(SCHEMA_VERSION + 1), "next"])
def test_parquet_of_a_newer_version_is_refused(tmp_path: Path, version: str) -> None:
    table = arrow.Table.from_pylist([to_row(point())]).replace_schema_metadata(
        {VERSION_KEY: version}
    )
    parquet.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(InputError, match=rf"p\.parquet: has version {version} .*upgrade advisor"):
        read_points(tmp_path / "p.parquet")


def test_parquet_made_by_pandas_is_read(tmp_path: Path) -> None:
    """Points measured elsewhere need no metadata; NaN and missing columns are no readings."""
    pandas: Any = importlib.import_module("pandas")
    rows = [to_row(point(1, power_w=300.0, throttled=True)), to_row(point(2))]
    pandas.DataFrame(rows).drop(columns=["flags", "host"]).to_parquet(tmp_path / "p.parquet")
    assert read_points(tmp_path / "p.parquet") == [
        point(1, power_w=300.0, throttled=True),
        point(2),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no header. begin with a line of column names"),
        (f"{HEADER}\n{ROW}\n{ROW.replace('12.5', 'fast')}\n", "line 3: rate is 'fast'"),
        (f"{HEADER}\n\n{ROW.replace(',50,', ',,')}\n", "line 3: missing .* share_percent"),
        (f"{HEADER},watts\n{ROW},3\n", "line 1: unknown column watts"),
        ("when,watts\n", "line 1: unknown column watts, when"),
        (f"{PAIR_HEADER},watts_1\n", "line 1: unknown column watts_1"),
        (f"{HEADER},job\n{ROW},x\n", "column job stands twice"),
        (f"{HEADER}\n{ROW},3\n", "line 2 has 9 values for 8 columns"),
        (f"{HEADER}\n{ROW[:20]}\n", "line 2 has 5 values for 8 columns"),
        (f'{HEADER}\n{ROW}"\n"', "line 3"),
        (
            f"{HEADER}\n{ROW}\n{ROW.replace('12.5', '13')}\n",
            "line 3: .* as line 2.*give started_at",
        ),
        (
            f"{PAIR_HEADER}\n{PAIR_ROW.replace('30', '130')}\n",
            "line 2: job 1 of the row: share_percent is 130",
        ),
        (f"{PAIR_HEADER},job\n{PAIR_ROW},x\n", "line 1: unknown column job"),
        (
            f"{PAIR_HEADER}\n{PAIR_ROW}\n{PAIR_ROW.replace('12.5', '13')}\n",
            "line 3: the same .*jobs.share_percent",
        ),
    ],
)
def test_a_bad_csv_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"p\.csv: {complaint}"):
        read_points(path)


def test_unknown_columns_are_refused_where_no_row_has_them(tmp_path: Path) -> None:
    """A table of something else was taken in without a word; one of ours without points is none."""
    pandas: Any = importlib.import_module("pandas")
    pandas.DataFrame({"when": [], "job": []}).to_parquet(tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"p\.parquet: unknown column when"):
        read_points(tmp_path / "p.parquet")
    for name in ("p.csv", "p.parquet", "p.jsonl"):
        write_points(tmp_path / name, [])
        assert read_points(tmp_path / name) == []


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("p.csv", b"job\xff\n", "not UTF-8"),
        ("p.jsonl", b"{}\n", "line 1: missing column"),
        ("p.jsonl", b"\n[1]\n", "line 2: no JSON object"),
        ("p.jsonl", b"rate\n", "line 1: no JSON"),
        ("p.parquet", b"PAR1", "not a Parquet file"),
        ("p.parquet", None, "cannot be read"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, name: str, content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: {complaint}"):
        read_points(tmp_path / name)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_that_never_ends_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO would hold the import for ever, a sparse file take all memory."""
    monkeypatch.setattr("advisor_data.files.MOST_BYTES", 1000)
    fifo, sparse = tmp_path / f"fifo{suffix}", tmp_path / f"sparse{suffix}"
    os.mkfifo(fifo)
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    for path, complaint in ((fifo, "not a regular file"), (sparse, "larger than 1000 bytes")):
        with pytest.raises(InputError, match=f"cannot be read. it is {complaint}"):
            read_points(path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_of_too_many_rows_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its name, before all of them are in memory."""
    write_points(tmp_path / f"p{suffix}", [point(n) for n in range(5)])
    monkeypatch.setattr("advisor_data.files.MOST_ROWS", 4)
    with pytest.raises(
        InputError,
        match=rf"p\{suffix}: has more than 4 rows. a file .* whole.*smaller",
    ):
        read_points(tmp_path / f"p{suffix}")


@pytest.mark.slow
def test_a_small_file_with_many_rows_costs_little(tmp_path: Path) -> None:
    """440 KB of Parquet may stand for 60 million rows; they are never all there at once."""
    texts = {name: text for name, text in to_row(point(0)).items() if isinstance(text, str)}
    many = {name: arrow.repeat(arrow.scalar(text), 3_000_000) for name, text in texts.items()}
    parquet.write_table(arrow.table(many), tmp_path / "p.parquet", compression="zstd")
    assert (tmp_path / "p.parquet").stat().st_size < 1 << 20
    script = (
        "import sys; from pathlib import Path; from advisor.errors import InputError\n"
        "from advisor_data.files import read_points\n"
        "try: read_points(Path(sys.argv[1]))\n"
        "except InputError as error: print(error)\n"
        # `ru_maxrss` would count the tests' own memory, which a started process inherits.
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "p.parquet"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said, most_kib = done.stdout.splitlines()
    assert "row 1: missing column" in said
    assert int(most_kib) < 1 << 20


@pytest.mark.parametrize("text", ["[" * 100_000, '{"job":' * 100_000, "[" * 100_000 + "\n"])
def test_json_that_is_too_deep_is_refused(tmp_path: Path, text: str) -> None:
    """A line end shows that it is whole; without one it is a torn end, which is left out."""
    (tmp_path / "p.jsonl").write_text(text)
    if text.endswith("\n"):
        with pytest.raises(InputError, match=r"p\.jsonl: line 1: no JSON"):
            read_points(tmp_path / "p.jsonl")
    else:
        assert read_points(tmp_path / "p.jsonl") == []


@pytest.mark.parametrize("unit", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "'", "'=1", "''x"])
def test_no_cell_of_a_csv_is_run(tmp_path: Path, unit: str) -> None:
    """Spreadsheets take such text as a formula; it is written as text, and read as it was."""
    write_points(tmp_path / "p.csv", [point(0, rate_unit=unit, run=unit)])
    header, values = csv.reader((tmp_path / "p.csv").read_text().splitlines())
    cells = dict(zip(header, values, strict=True))
    assert cells["rate_unit"] == cells["run"] == "'" + unit
    (read,) = read_points(tmp_path / "p.csv")
    assert isinstance(read, SoloPoint)
    assert (read.rate_unit, read.run) == (unit, unit)


def test_numbers_of_a_csv_stay_numbers(tmp_path: Path) -> None:
    """A saving below 0 begins with a minus sign, and an apostrophe that people write stays."""
    write_points(tmp_path / "p.csv", [observation(0, energy_saved=-0.25)])
    assert ",-0.25," in (tmp_path / "p.csv").read_text()
    (tmp_path / "p.csv").write_text(f"{HEADER}\n'{ROW}\n")
    (read,) = read_points(tmp_path / "p.csv")
    assert isinstance(read, SoloPoint)
    assert read.job == "'gemm"


def test_a_bad_parquet_row_is_named(tmp_path: Path) -> None:
    """Rows count from 1, as there are no lines."""
    rows = [{**to_row(point(n)), "power_w": -n} for n in range(3)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"p\.parquet: row 2: power_w is -1"):
        read_points(tmp_path / "p.parquet")


def test_the_same_row_twice_is_one_point(tmp_path: Path) -> None:
    """A file glued from two exports is read."""
    (tmp_path / "p.csv").write_text(f"{HEADER}\n{ROW}\n{ROW}\n")
    assert len(read_points(tmp_path / "p.csv")) == 1


def test_csv_from_a_spreadsheet_is_read(tmp_path: Path) -> None:
    """A byte order mark, Windows line ends, quotes and another order of columns do no harm."""
    columns = ",".join(reversed(HEADER.split(",")))
    values = ",".join(f'"{value}"' for value in reversed(ROW.split(",")))
    (tmp_path / "p.csv").write_bytes(f"\ufeff{columns}\r\n{values}\r\n".encode())
    (read,) = read_points(tmp_path / "p.csv")
    assert isinstance(read, SoloPoint)
    assert read.rate == 12.5


def test_a_torn_last_line_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "points.jsonl"
    write_points(path, [point(1), point(2)])
    path.write_bytes(path.read_bytes()[:-9])
    assert read_points(path) == [point(1)]
    assert "cut off" in caplog.text


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export that fails changes nothing and leaves no draft behind."""
    path = tmp_path / f"p{suffix}"
    write_points(path, [point(1)])
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=rf"p\{suffix} cannot be written. No space left"):
        write_points(path, [point(2)])
    assert (read_points(path), list(tmp_path.iterdir())) == ([point(1)], [path])


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.parquet, \.csv, \.jsonl"):
        write_points(tmp_path / "p.xlsx", [point()])


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write_points(tmp_path / "p.csv", [point()])
    assert read_points(tmp_path / "p.csv") == [point()]
    with pytest.raises(InputError, match=re.escape(install("parquet"))):
        write_points(tmp_path / "p.parquet", [point()])


def test_bundled_points_are_read_from_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in the package is what the function gives; without it the error names it."""
    monkeypatch.setattr(bundled.resources, "files", Mock(return_value=tmp_path))
    folder = tmp_path / "bundled"
    folder.mkdir(parents=True)
    alone = dataclasses.replace(point(), run="campaign")
    for name, points, read in (
        ("solo", [point()], bundled_solo_points),
        ("pairs", [pair_point()], bundled_pair_points),
        ("references", [alone], bundled_reference_points),
    ):
        with pytest.raises(StoreError, match=rf"bundled/{name}\.jsonl"):
            read()
        write_points(folder / f"{name}.jsonl", points)
        assert read() == points


def test_the_schema_page_is_up_to_date() -> None:
    stored = Path(__file__).parents[4] / "docs" / "schema.md"
    remedy = "run: python -m advisor_data.schema_page > docs/schema.md"
    assert stored.read_text() == schema_page.page(), remedy


def test_the_schema_page_has_every_column_of_each_kind() -> None:
    """Columns of both kinds of points stand there once, but `mode`; observations stand apart."""
    rows = re.findall(r"^\| `(\w+)` \|", schema_page.page(), flags=re.MULTILINE)
    of_points = {*column_types(SoloPoint), *column_types(PairPoint)}
    parts = (name for kind in PARTS.values() for name in column_types(kind))
    columns = Counter([*of_points, "mode", *column_types(Observation), *parts])
    assert Counter(rows) == columns


# which pair points are used, and what is said of the others


def test_doubtful_points_are_left_out_and_counted() -> None:
    """Each point counts once, under its first doubtful flag; other flags do no harm."""
    points = [
        pair_point(0),
        pair_point(1, flags=("throttled", "noisy-rate")),
        pair_point(2, flags=("failed",)),
        pair_point(3, flags=("throttled", "counter-mismatch", "failed")),
        pair_point(4, flags=("counter-mismatch",)),
    ]
    assert select(points) == (points[:2], {"counter-mismatch": 2, "failed": 1})


@given(st.lists(st.lists(st.sampled_from(sorted(FLAGS)), unique=True).map(tuple)))
def test_every_point_is_kept_or_counted(flags: list[tuple[str, ...]]) -> None:
    points = [pair_point(number, flags=words) for number, words in enumerate(flags)]
    chosen, left_out = select(iter(points))
    assert len(chosen) + sum(left_out.values()) == len(points)
    assert set(left_out) <= DOUBTFUL
    assert chosen == [p for p in points if not DOUBTFUL & set(p.flags)]


# the measurements that come with the package, all of them or those of some jobs


def test_points_of_some_jobs_are_those_of_all_points_that_are_of_these_jobs() -> None:
    names = {"bert-infer", "transpose"}
    expected = [point for point in bundled_solo_points() if point.job in names]
    assert {point.job for point in expected} == names
    assert bundled_solo_points(names) == expected


def test_no_job_and_a_job_that_was_not_measured_have_no_points() -> None:
    assert bundled_solo_points(()) == bundled_solo_points(["bert"]) == []


# What is refused of points that are brought in, and what is said of those that are taken.


ALL = {"power_w": 300.0, "idle_power_w": 75.0, "power_limit_w": 700.0, "memory_used_mib": 900.0}


def rows(*units: str, **fields: Any) -> list[ProfileRow]:
    """What is stored of a job, by the units of its rates."""
    return profile_rows(point(9 + n, rate_unit=unit, **fields) for n, unit in enumerate(units))


def profile(**fields: Any) -> list[SoloPoint]:
    shares = enumerate((50.0, 100.0))
    return [point(n, share_percent=share, **{"job": "mine", **fields}) for n, share in shares]


@pytest.mark.parametrize(
    ("points", "stored", "said"),
    [
        ([point(share_percent=0.5)], [], "share_percent of gemm is 0.5, less than 1 %.*write 50"),
        ([point(share_percent=0.999)], [], "write 99.9"),
        ([pair_point(share_1_percent=0.3)], [], r"of gemm in gemm \+ sort is 0.3.*write 30"),
        ([pair_point(share_2_percent=0.7)], [], r"of sort in gemm \+ sort is 0.7"),
        ([observation(share_2_percent=0.7)], [], r"of sort in gemm \+ sort is 0.7"),
        (
            [point(1, rate_unit="images"), point(2)],
            [],
            "rates of gemm on NVIDIA H200 are in images and steps.*delete --job gemm",
        ),
        ([point(1)], rows("images"), "are in images and steps"),
        ([pair_point(1)], rows("images", "passes"), "are in images and passes"),
    ],
)
def test_points_that_would_be_wrong_are_refused(
    points: list[Record], stored: list[ProfileRow], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check_import(points, stored)


@pytest.mark.parametrize(
    ("points", "stored"),
    [
        ([point(share_percent=1.0)], rows("steps")),
        ([point(share_percent=0.5, mode="cu_mask")], []),
        ([point(1, rate_unit="images"), point(2, job="sort"), point(3, gpu_model="A100")], []),
        ([point(1)], rows("images", gpu_model="A100") + rows("images", job="sort")),
        ([pair_point(1), observation(1)], []),
    ],
)
def test_points_that_may_be_right_are_taken(points: list[Record], stored: list[ProfileRow]) -> None:
    """A CU mask of one unit is less than 1 %; each job and GPU model may have a unit of its own."""
    check_import(points, stored)


@pytest.mark.parametrize(
    ("stored", "notes"),
    [
        (profile(**ALL), []),
        (profile(**{**ALL, "idle_power_w": None}), ["idle_power_w is missing; that of other"]),
        (profile(power_w=300.0), ["idle_power_w is", "power_limit_w is", "memory_used_mib is"]),
        ([*profile(power_w=300.0), *profile(**ALL)], []),
        (profile(**{**ALL, "power_w": None}), ["no profile yet: at 100 % power_w is missing"]),
        # Of a card without a sensor measuring again brings none.
        (profile(**{**ALL, "power_w": None}, source="nvml"), ["no profile yet: no power here"]),
        (
            [*profile(power_w=None, source="nvml"), *profile(power_w=None)],
            ["no profile yet: at 100 % power_w is missing"],
        ),
        (profile(**ALL)[:1], ["no profile yet: there is no point at 100 %"]),
        (profile(job="triad", **ALL), ["used from now on instead of the bundled profile"]),
        (profile(job="triad", gpu_model="Other GPU", **ALL), []),
    ],
)
def test_a_person_is_told_what_the_points_make(stored: list[SoloPoint], notes: list[str]) -> None:
    """Of the job on its model, by all that is stored of it and not of what was brought in alone."""
    told = import_notes([stored[-1], pair_point()], stored)
    of = f"{stored[-1].job} on {stored[-1].gpu_model}: "
    assert len(told) == len(notes)
    assert all(note.startswith(of + begin) for note, begin in zip(told, notes, strict=True))


def test_pairs_say_nothing_and_a_damaged_package_hides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*_: object) -> None:
        raise StoreError("damaged")

    monkeypatch.setattr("advisor_data.files.bundled_solo_points", damaged)
    stored = profile(job="triad", **ALL)
    assert (import_notes(stored, stored), import_notes([pair_point()], stored)) == ([], [])


# Checks, sensors, kernels and inputs: measured on this host first, then what is bundled.


POINT = made_up_input_points.points(groups=1)[0]
EDGES = {name: float(n % 2) for n, name in enumerate(POINT.features)}
NAME = next(iter(EDGES))
"""Of one feature."""


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what comes with the package, into which nothing has been put yet."""
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: tmp_path / "bundled")
    return tmp_path / "bundled"


# counts


def test_the_check_of_a_model_is_found_by_its_sms(tmp_path: Path, bundle: Path) -> None:
    assert (checked_counts(tmp_path, "NVIDIA H200"), checks_stamp(tmp_path)) == (None, ())
    found = checked_132()
    keep_check(found, tmp_path)
    stamp = checks_stamp(tmp_path)
    assert [name for name, *_ in stamp] == ["nvidia-h200.json"]
    for units, expected in ((None, found), (132, found), (66, None)):
        assert checked_counts(tmp_path, "NVIDIA H200", units) == expected
    keep_check(checked_with(132, {8}), tmp_path)
    assert checks_stamp(tmp_path) != stamp


def test_what_was_wrong_elsewhere_is_wrong_where_it_was_not_tried(
    tmp_path: Path, bundle: Path
) -> None:
    """The own result of a count stays where there is one."""
    keep_check(checked_with(132, {26}), tmp_path)
    (check,) = all_checks(tmp_path)
    other = dataclasses.replace(
        check, gpu_model="NVIDIA H100", operations=("fft",), wrong={26: ("fft",), 38: ("fft",)}
    )
    (bundle / "checks").mkdir(parents=True)
    (bundle / "checks" / "other.json").write_text(write(other))
    (bundle / "checks" / "README").touch()
    counts = checked_counts(tmp_path, "NVIDIA H200")
    assert counts is not None
    assert counts.wrong == {26: check.wrong[26], 38: ("fft on NVIDIA H100",)}
    assert counts.checked == check.checked
    assert all_checks(tmp_path) == [check, other]


# sensors and kernels


def test_what_was_measured_here_goes_before_what_is_bundled(tmp_path: Path) -> None:
    assert all_checks(tmp_path) == bundled_checks()
    sensor, kernel = bundled_sensors()[-1], bundled_kernels()[0]
    own = dataclasses.replace(sensor, gpu_uuid="GPU-2", source="live")
    keep_record(own, tmp_path)
    KERNEL_REPORTS.keep(dataclasses.replace(kernel, source="live"), tmp_path, "one")
    assert all_sensors(tmp_path) == [own, *bundled_sensors()]
    assert [one.source for one in all_kernels(tmp_path)[:2]] == ["live", "bundled"]
    assert bundled_name(own) == f"nvidia-h200-2-{sensor.driver}"
    assert bundled_recording(sensor).startswith(b"{")


def test_a_package_without_measurements_has_none(tmp_path: Path, bundle: Path) -> None:
    read = (bundled_checks, bundled_sensors, bundled_kernels, bundled_input_points)
    assert [list(one()) for one in read] == [[]] * 4


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("sensors/h200.json", bundled_sensors),
        ("kernels/kernels.jsonl", bundled_kernels),
    ],
)
def test_a_damaged_package_names_the_file(bundle: Path, file: str, read: Callable[[], Any]) -> None:
    (bundle / file).parent.mkdir(parents=True)
    (bundle / file).write_text("{}")
    with pytest.raises(StoreError, match=rf"{Path(file).name} is missing or damaged.*install"):
        read()


# inputs


def test_input_points_are_the_same_in_any_order(tmp_path: Path) -> None:
    edge = dataclasses.replace(POINT, features=EDGES, shape=(1, 1, 1), reference_w=None)
    kept, file = [POINT, edge], tmp_path / "inputs.jsonl"
    text = input_points_text(kept)
    file.write_bytes(text.replace(b"\n", b"\n\n"))
    assert sorted(map(write, read_input_points(file))) == sorted(map(write, kept))
    assert (text, input_points_sha256(kept)) == (
        input_points_text(kept[::-1]),
        input_points_sha256(kept[::-1]),
    )
    assert input_points_sha256(kept[:1]) != input_points_sha256(kept)
    with pytest.raises(InputError, match=r"none\.jsonl cannot be read.*advisor power train"):
        read_input_points(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"features": {**EDGES, "new": 0.5}}, "features new are missing or unknown"),
        ({"features": {n: 0.5 for n in EDGES if n != NAME}}, f"features {NAME} are missing"),
        ({"features": {**EDGES, NAME: -0.1}}, f"{NAME} is -0.1"),
        ({"features": {**EDGES, NAME: 1.1}}, f"{NAME} is 1.1"),
        ({"idle_w": 0.0}, "and idle_w 0"),
        ({"power_w": POINT.idle_w}, f"power_w is {POINT.idle_w:g} and idle_w {POINT.idle_w:g}"),
        ({"flop_per_s": 0.0}, "flop_per_s is 0"),
        ({"clock_mhz": -1.0, "reference_w": 0.0}, "clock_mhz is -1, reference_w is 0"),
        ({"units": 0}, "units is 0"),
        ({"shape": (0, 8, 8)}, r"shape is \(0, 8, 8\)"),
        ({"watts": 3}, "watts"),
        ({"power_w": "400"}, "power_w"),
    ],
)
def test_an_input_point_that_cannot_be_is_named(
    bundle: Path, fields: dict[str, Any], said: str
) -> None:
    """By file and line, with every number that is outside of its range."""
    bundle.mkdir()
    text = (
        input_points_text([POINT]) + b"\n" + json.dumps(dataclasses.asdict(POINT) | fields).encode()
    )
    (bundle / bundled.INPUTS).write_bytes(text)
    with pytest.raises(InputError, match=rf"bundled inputs\.jsonl, line 3: .*{said}"):
        bundled_input_points()
