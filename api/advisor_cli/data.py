"""`advisor data` and `advisor jobs`: points in and out, the database, and what was measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from advisor.core.records import Observation, PairPoint, Record, SoloPoint
from advisor.core.wording import count_of, listed
from advisor.errors import InputError
from advisor.formats.job_file import sound_jobs
from advisor.settings import read_settings
from advisor.validity.points import with_flags, with_pair_flags, with_solo_flags
from advisor.wire.answers import JobList, JobRow
from advisor_cli.console import AsJson, Columns, as_json_text, print_table, say, say_lines, table_of
from advisor_data import Store, is_begun, open_store
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import check_import, import_notes, read_points, write_points
from advisor_data.lists import LAST_NAME, ProfileRow, job_rows, profile_rows

app = typer.Typer(
    help="Import and export points; back up, restore and migrate the database.",
    no_args_is_help=True,
)

RecordKind = Literal["solo", "pairs", "observations"]

_Kind: TypeAlias = Annotated[
    RecordKind,
    typer.Option(help="solo: one job alone; pairs: two together; observations: launches"),
]

# How many jobs or pairs are named before something is deleted.
_NAMED = 5

_RECORDS: dict[RecordKind, type[Record]] = {
    "solo": SoloPoint,
    "pairs": PairPoint,
    "observations": Observation,
}


@app.command("import")
def import_(files: list[Path], as_json: AsJson = False) -> None:
    """Import points and observations from Parquet, CSV or JSON-lines files.

    Stored points stay as they are.

    Example: advisor data import points.parquet
    """
    points = with_flags(point for file in files for point in read_points(file))
    jobs = dict.fromkeys(point.job for point in points if isinstance(point, SoloPoint))
    with open_store(*_database()) as store:
        check_import(points, [row for job in jobs for row in store.profile_rows(job, job)])
        of_kinds = {k: [p for p in points if isinstance(p, of)] for k, of in _RECORDS.items()}
        counts = {k: {"read": len(of), "new": store.add(of)} for k, of in of_kinds.items()}
        stored = [point for job in jobs for point in store.solo_points(job=job)]
    read, new = (sum(count[key] for count in counts.values()) for key in ("read", "new"))
    # Points that were there say nothing new.
    notes = import_notes(points, stored) if new else []
    each = "; ".join(f"{kind} {c['read']} read, {c['new']} new" for kind, c in counts.items())
    text = "\n! ".join((f"{read} points read, {new} new ({each})", *notes))
    _say(as_json, text, read=read, new=new, **counts, notes=notes)


@app.command("export")
def export(
    file: Path,
    kind: _Kind = "solo",
    job: Annotated[str | None, typer.Option(help="Only this job, or pairs with it")] = None,
    run: Annotated[str | None, typer.Option(help="Only this run, or this launch")] = None,
    as_json: AsJson = False,
) -> None:
    """Write points of one kind to a file: .parquet, .csv or .jsonl.

    Example: advisor data export pairs.parquet --kind pairs
    """
    with open_store(*_database()) as store:
        points = _wanted(store, kind, job, run)
    write_points(file, points)
    written = (
        f"{len(points)} points written to {file}"
        if points
        else (
            f"no points of kind {kind} are stored here, so {file} has none; those that come with "
            "advisor: advisor.load_dataset (docs/schema.md)"
        )
    )
    _say(as_json, written, written=len(points))


@app.command("delete")
def delete(
    job: Annotated[str | None, typer.Option(help="Only this job, or pairs with it")] = None,
    gpu_model: Annotated[str | None, typer.Option(help="Only this GPU model")] = None,
    run: Annotated[str | None, typer.Option(help="Only this run, or this launch")] = None,
    kind: _Kind = "solo",
    written_by: Annotated[
        str | None, typer.Option(help="Only points sent to a service by this token or user")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove stored points of one kind; bundled ones stay.

    Example: advisor data delete --kind pairs --run pairs-a76b7c50
    """
    if not (job or gpu_model or run or written_by):
        raise InputError(
            "all points would be deleted", fix="give --job, --gpu-model, --run or --written-by"
        )
    if as_json and not yes:
        raise InputError("--json cannot ask", fix="give --yes, too")
    with open_store(*_database()) as store:
        points = [
            point
            for point in _wanted(store, kind, job, run)
            if gpu_model in (None, point.gpu_model) and written_by in (None, point.written_by)
        ]
        if points and not yes:
            typer.confirm(f"delete {_of_what(points)}?", abort=True)
        deleted = store.delete(points) if points else 0
    text = f"{_of_what(points)} deleted" if points else "no such points are stored"
    _say(as_json, text, deleted=deleted, kind=kind)


@app.command("migrate")
def migrate() -> None:
    """Bring the database's schema to this version's.

    Example: advisor data migrate
    """
    from advisor_data.store import migrate as migrate_store  # only here: SQLAlchemy takes time

    changed = migrate_store(*_database())
    current = "the database's schema is current"
    say(f"tables were made or changed; {current}" if changed else f"{current} already")


@app.command("backup")
def backup(file: Path, as_json: AsJson = False) -> None:
    """Copy an SQLite database into one file, also while others write; see docs/state.md.

    Example: advisor data backup advisor.db
    """
    from advisor_data.store import back_up  # only here: SQLAlchemy takes time to load

    size_bytes = back_up(*_database(), file)
    _say(as_json, f"{size_bytes} bytes written to {file}", written_bytes=size_bytes)


@app.command("restore")
def restore(
    file: Path,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the existing database")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore the SQLite database from a backup: all of it, or nothing.

    Example: advisor data restore advisor.db
    """
    from advisor_data.store import restore as bring_back  # as in backup

    bring_back(*_database(), file, overwrite=overwrite)
    _say(as_json, f"the database is as {file} says", restored=str(file))


def _database() -> tuple[str | None, Path]:
    """Its URL, and the folder where it is by default."""
    settings = read_settings()
    return settings.database_url, settings.home


def _of_what(points: Sequence[Record]) -> str:
    names = {p.job if isinstance(p, SoloPoint) else " + ".join(p.jobs) for p in points}
    some = listed(sorted(names)) if len(names) <= _NAMED else f"{len(names)} jobs or pairs"
    models = listed(sorted({point.gpu_model for point in points}))
    return f"{count_of(len(points), 'point')} of {some} on {models}"


def _wanted(store: Store, kind: RecordKind, job: str | None, run: str | None) -> Sequence[Record]:
    if kind == "solo":
        return with_solo_flags(store.solo_points(job=job, run=run))
    if kind == "pairs":
        return with_pair_flags(
            (p for p in store.pair_points(run=run) if job is None or job in p.jobs),
            with_solo_flags(store.solo_points()),
        )
    return [
        observation
        for observation in store.observations()
        if (job is None or job in observation.jobs) and run in (None, observation.launch_id)
    ]


def _say(as_json: bool, text: str, **result: Any) -> None:
    say(as_json_text(result) if as_json else text)


_COLUMNS: Columns[JobRow] = (
    ("job", lambda row: row.job),
    ("gpu model", lambda row: row.gpu_model or "not measured"),
    ("shares %", lambda row: _shares(row.shares)),
    ("points", lambda row: row.points),
    ("measured", lambda row: (row.measured_at or "")[:10]),
    ("flags", lambda row: " ".join(row.flags)),
)


def jobs(
    bundled: Annotated[
        bool, typer.Option("--bundled", help="List the profiles bundled with advisor")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the jobs of this folder and the profiles that were measured.

    Example: advisor jobs --bundled
    """
    if bundled:
        rows = job_rows((), (), profile_rows(bundled_solo_points()))
    else:
        sound, faults = sound_jobs(read_settings().jobs_dir)
        say_lines((f"! {fault}" for fault in faults), err=True)
        rows = job_rows([job.name for job in sound], _measured())
    if as_json:
        say(as_json_text(JobList(jobs=rows)))
    elif rows:
        print_table(table_of(_COLUMNS, rows))
    else:
        say(
            "no job is defined or measured here\n"
            "measure one:         advisor profile --name NAME -- COMMAND\n"
            "come with advisor:   advisor jobs --bundled"
        )


def _measured() -> Sequence[ProfileRow]:
    """Contents of the store; a read makes none."""
    if not is_begun(*_database()):
        return ()
    with open_store(*_database()) as store:
        return store.profile_rows("", LAST_NAME)


def _shares(shares: Sequence[float]) -> str:
    """All shares, or the first, the last and their number where there are many."""
    ends = f"{shares[0]:g}..{shares[-1]:g} ({len(shares)})" if len(shares) > 4 else ""
    return ends or " ".join(f"{share:g}" for share in shares)
