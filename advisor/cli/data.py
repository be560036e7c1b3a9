"""`advisor data`: bring points in, take them out, keep the database's schema current."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from advisor.records import PairPoint, Point, SoloPoint
from advisor.settings import read_settings
from advisor_data import Store, open_store
from advisor_data import migrate as migrate_store
from advisor_data.files import read_points, write_points

app = typer.Typer(help="Import and export points; migrate the database.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Result as JSON on stdout")]
Kind = Literal["solo", "pairs"]

_RECORDS: dict[Kind, type[Point]] = {"solo": SoloPoint, "pairs": PairPoint}


@app.command("import")
def import_(files: list[Path], as_json: AsJson = False) -> None:
    """Bring solo and pair points from Parquet, CSV or JSON-lines files.

    Points that are there already are left as they are.
    """
    settings = read_settings()
    points = [point for file in files for point in read_points(file)]
    with open_store(settings.database_url, settings.home) as store:
        counts = {kind: _take_in(store, points, record) for kind, record in _RECORDS.items()}
    read, new = (sum(count[key] for count in counts.values()) for key in ("read", "new"))
    each = "; ".join(f"{kind} {c['read']} read, {c['new']} new" for kind, c in counts.items())
    _say(as_json, f"{read} points read, {new} new ({each})", read=read, new=new, **counts)


@app.command("export")
def export(
    file: Path,
    kind: Annotated[Kind, typer.Option(help="One job alone, or two together")] = "solo",
    job: Annotated[str | None, typer.Option(help="Only this job, or pairs with it")] = None,
    run: Annotated[str | None, typer.Option(help="Only this run")] = None,
    as_json: AsJson = False,
) -> None:
    """Write points of one kind to a Parquet, CSV or JSON-lines file, as the name ends."""
    settings = read_settings()
    with open_store(settings.database_url, settings.home) as store:
        points = _wanted(store, kind, job, run)
    write_points(file, points)
    _say(as_json, f"{len(points)} points written to {file}", written=len(points))


@app.command("migrate")
def migrate() -> None:
    """Bring the database's schema to this version's."""
    settings = read_settings()
    migrate_store(settings.database_url, settings.home)
    typer.echo("the database's schema is current")


def _take_in(store: Store, points: Sequence[Point], record: type[Point]) -> dict[str, int]:
    mine = [point for point in points if isinstance(point, record)]
    return {"read": len(mine), "new": store.add(mine)}


def _wanted(store: Store, kind: Kind, job: str | None, run: str | None) -> Sequence[Point]:
    if kind == "solo":
        return store.solo_points(job=job, run=run)
    return [p for p in store.pair_points(run=run) if job is None or job in p.pair]


def _say(as_json: bool, text: str, **result: Any) -> None:
    typer.echo(json.dumps(result) if as_json else text)
