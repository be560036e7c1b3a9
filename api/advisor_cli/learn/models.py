"""`advisor models`: which models are here, how good they are, and which of them is used."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.wording import count_of
from advisor.errors import ModelError
from advisor.settings import read_settings
from advisor.wire.answers import Champion, ModelRow
from advisor_cli.console import (
    AsJson,
    Columns,
    as_json_text,
    plain_table,
    print_table,
    say,
    say_lines,
    table_of,
)
from advisor_models.registry import (
    BUNDLED_NAME,
    MANIFEST,
    Manifest,
    Registry,
    model_details,
    model_list,
    read_artefact,
)

app = typer.Typer(help="List, check and choose the models on this host.", no_args_is_help=True)


# Headings are never cut off: on a narrow terminal lines wrap.
def _figure(name: str) -> Callable[[ModelRow], str]:
    """The cell of a figure; empty of a damaged model."""
    return lambda row: (
        "" if row.error else f"{row.figures[name]:.2f}" if name in row.figures else "-"
    )


_COLUMNS: Columns[ModelRow] = (
    ("", lambda row: "*" if row.champion else ""),
    (
        "model",
        lambda row: (
            f"{row.model} {row.version}" if row.model == BUNDLED_NAME and row.version else row.model
        ),
    ),
    ("made", lambda row: (row.created_at or "")[:10]),
    ("GPU models", lambda row: ", ".join(row.gpu_models)),
    ("pairs", lambda row: row.pairs),
    # Figures of manifests, all of them for jobs that the model had not seen.
    ("oracle %", _figure("oracle_energy_efficiency_percent")),
    ("rate error %", _figure("rate_mean_error_percent")),
    ("power error %", _figure("power_mean_error_percent")),
    ("state", lambda row: row.error or "ok"),
)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the models; a star marks the champion, which makes the predictions.

    Example: advisor models list
    """
    models = model_list(_registry())
    if as_json:
        say(as_json_text(models))
    else:
        print_table(table_of(_COLUMNS, models.models))


@app.command("show")
def show(
    version: Annotated[
        str | None, typer.Argument(help="Version, or `bundled` (default: the champion)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the details of one model.

    Example: advisor models show bundled
    """
    registry = _registry()
    champion = registry.champion()
    wanted = champion if version is None else version
    if as_json:
        say(as_json_text(model_details(registry, wanted)))
        return
    manifest = read_artefact(registry.folder(wanted)).manifest
    say_lines(_lines(wanted, manifest, is_champion=wanted == champion))
    figures = ((name, f"{value:g}") for name, value in manifest.figures.items())
    print_table(plain_table(("figure", "value"), figures))


@app.command("promote")
def promote(
    model: Annotated[
        str, typer.Argument(help="Version, `bundled`, or the folder of a trained model")
    ],
    as_json: AsJson = False,
) -> None:
    """Make a model the champion; a folder is imported first.

    Example: advisor models promote new-model
    """
    registry = _registry()
    is_registered, folder = model == BUNDLED_NAME or model in registry.versions(), Path(model)
    if not is_registered and (folder / MANIFEST).is_file():
        model = registry.add(folder).version
    elif not is_registered and ("/" in model or folder.is_dir()):
        raise ModelError(
            f"{folder} is not a model folder",
            why=f"there is no {MANIFEST} in it" if folder.is_dir() else "there is no such folder",
            fix=f"train one: advisor train --out {folder}",
        )
    before = registry.champion()
    registry.promote(model)
    _say_change(registry, before, as_json=as_json)
    figures = (
        registry.history()[-1].figures if before != model and not as_json else dict[str, float]()
    )
    for what in ("rate", "power"):
        name = f"{what}_mean_error_percent"
        if (measured := figures.get(f"bundled_{name}")) is not None:
            claimed = f"{figures[name]:.1f} %" if name in figures else "nothing"
            say(f"  {what} off by {measured:.1f} % on the bundled windows; it claims {claimed}")


@app.command("rollback")
def rollback(as_json: AsJson = False) -> None:
    """Restore the champion that the last promotion replaced.

    Example: advisor models rollback
    """
    registry = _registry()
    before = registry.champion()
    registry.rollback()
    _say_change(registry, before, as_json=as_json)


@app.command("check")
def check(
    version: Annotated[
        str | None, typer.Argument(help="Version, or `bundled` (default: all)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the files of models against their hashes, load them, and run them once.

    Example: advisor models check
    """
    registry = _registry()
    checked = (BUNDLED_NAME, *registry.versions()) if version is None else (version,)
    faults = {name: _fault(registry, name) for name in checked}
    rows = [{"model": name, "error": fault} for name, fault in faults.items()]
    lines = (f"{name}: {fault or 'ok'}" for name, fault in faults.items())
    say_lines([as_json_text({"models": rows})] if as_json else lines)
    if any(faults.values()):
        raise typer.Exit(ModelError.exit_code)


def _registry() -> Registry:
    return Registry(read_settings().home / "models")


def _fault(registry: Registry, name: str) -> str | None:
    try:
        registry.open(name)
    except ModelError as error:
        return str(error)
    return None


def _lines(name: str, m: Manifest, *, is_champion: bool) -> Iterator[str]:
    star = ", the champion" if is_champion else ""
    jobs, cards = count_of(len(m.dataset.jobs), "job"), count_of(m.dataset.cards, "card")
    yield f"{name}: {m.version}{star}"
    yield f"{m.learner}, {count_of(int(m.settings['trees']), 'tree')}, made {m.created_at}"
    yield (
        f"learned from {count_of(m.dataset.pairs, 'pair')} ({m.dataset.pair_points} points) of "
        f"{jobs} on {cards}: {', '.join(m.gpu_models)}"
    )
    heads = (f"{head.name} ({count_of(len(head.features), 'feature')})" for head in m.heads)
    yield f"predicts {', '.join(heads)}"
    yield f"intervals are to hold {100 * m.coverage:g} % of the measured values"
    yield f"libraries: {', '.join(f'{n} {v}' for n, v in m.libraries.items())}"
    yield from (f"{name}: sha256 {hash_}" for name, hash_ in m.files.items())


def _say_change(registry: Registry, before: str, *, as_json: bool) -> None:
    now = registry.champion()
    if as_json:
        say(as_json_text(Champion(champion=now, replaced=before)))
    elif now == before:
        say(f"{now} is the champion already")
    else:
        say(f"{now} is the champion now; it was {before}")
