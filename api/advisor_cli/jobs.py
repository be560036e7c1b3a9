"""`advisor jobs`: what is defined here and what has been measured."""

from collections.abc import Sequence
from typing import Annotated

import typer

from advisor.formats.job_file import sound_jobs
from advisor.settings import Settings, read_settings
from advisor.wire.answers import JobList, JobRow
from advisor_cli.console import AsJson, Columns, as_json_text, print_table, say, say_lines, table_of
from advisor_data import is_begun, open_store
from advisor_data.bundled import bundled_solo_points
from advisor_data.lists import LAST_NAME, ProfileRow, job_rows, profile_rows

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
    settings = read_settings()
    if bundled:
        rows = job_rows((), (), profile_rows(bundled_solo_points()))
    else:
        sound, faults = sound_jobs(settings.jobs_dir)
        names = [job.name for job in sound]
        say_lines((f"! {fault}" for fault in faults), err=True)
        rows = job_rows(names, _measured(settings))
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


def _measured(settings: Settings) -> Sequence[ProfileRow]:
    """Contents of the store; a read makes none."""
    if not is_begun(settings.database_url, settings.home):
        return ()
    with open_store(settings.database_url, settings.home) as store:
        return store.profile_rows("", LAST_NAME)


def _shares(shares: Sequence[float]) -> str:
    """All shares, or the first, the last and their number where there are many."""
    if len(shares) > 4:
        return f"{shares[0]:g}..{shares[-1]:g} ({len(shares)})"
    return " ".join(f"{share:g}" for share in shares)
