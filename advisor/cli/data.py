"""`advisor data`: bring points in, take them out, keep the database's schema current."""

import json
from pathlib import Path
from typing import Annotated

import typer

from advisor.settings import read_settings
from advisor_data import migrate as migrate_store
from advisor_data import open_store
from advisor_data.files import read_points, write_points

app = typer.Typer(help="Import and export points; migrate the database.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout")]


@app.command("import")
def import_(files: list[Path], as_json: AsJson = False) -> None:
    """Bring points from Parquet, CSV or JSON-lines files; known ones are left as they are."""
    settings = read_settings()
    points = [point for file in files for point in read_points(file)]
    with open_store(settings.database_url, settings.home) as store:
        new = store.add(points)
    _say(as_json, f"{len(points)} points read, {new} new", read=len(points), new=new)


@app.command("export")
def export(
    file: Path,
    job: Annotated[str | None, typer.Option(help="Only this job")] = None,
    run: Annotated[str | None, typer.Option(help="Only this run")] = None,
    as_json: AsJson = False,
) -> None:
    """Write points to a Parquet, CSV or JSON-lines file, as the name ends."""
    settings = read_settings()
    with open_store(settings.database_url, settings.home) as store:
        points = store.solo_points(job=job, run=run)
    write_points(file, points)
    _say(as_json, f"{len(points)} points written to {file}", written=len(points))


@app.command("migrate")
def migrate() -> None:
    """Bring the database's schema to this version's."""
    settings = read_settings()
    migrate_store(settings.database_url, settings.home)
    typer.echo("the database's schema is current")


def _say(as_json: bool, text: str, **numbers: int) -> None:
    typer.echo(json.dumps(numbers) if as_json else text)
