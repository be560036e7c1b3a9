"""`advisor power train`: measured inputs to a model of power by data."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.core.wording import count_of
from advisor.errors import InputError
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor.wire.power import InputPoint
from advisor_cli.options import AsJson, WithBundled
from advisor_cli.progress import leaving_out
from advisor_cli.say import as_json_text, say
from advisor_data.known import bundled_input_points, read_input_points
from advisor_power.inputs.keeping import read_kept
from advisor_power.inputs.predicting.learned_from import kept_points, points_of
from advisor_power.learn import train as training
from advisor_power.learn.train import TrainedInputs
from advisor_power.model.find import own_folder
from advisor_power.model.manifest import InputManifest

_KINDS = {
    "power": "power by the data alone, where nothing held the clock back",
    "speed": "speed by the data and the power that limit or heat left",
    "energy": "power at the speed that was measured, everywhere",
}


def train(
    points: Annotated[
        list[Path] | None,
        typer.Option(
            help="points.jsonl of a model, or a file of the home's inputs/; may be repeated; else "
            "those measured here"
        ),
    ] = None,
    with_bundled: WithBundled = False,
    gpu_model: Annotated[
        str | None, typer.Option(help="Learn this one; else the one with the most points")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model; else that of the home: it is used")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn what data do to power, from what `advisor power input` measured.

    Each pattern of data is left out once, to know how good the model is for data that it has not
    seen. It writes trees, points.jsonl and manifest.json.

    Example: advisor power train
    """
    settings = read_settings()
    found, unused = _read(points or [], settings.home, with_bundled=with_bundled)
    folder = out or own_folder(settings.home)
    with leaving_out("patterns") as tick:
        trained = training.fit_inputs(found, tick, gpu_model)
    # One point of each card is enough to tell when: the newest is the time of the model.
    newest = max(datetime.fromisoformat(p.measured_at) for p in trained.points)
    manifest = training.make_input_manifest(trained, newest.astimezone(UTC))
    manifest = training.write_input_model(folder, trained, manifest)
    told = [*_lines(manifest, unused), f"written: {folder}"]
    answer = _to_json(trained, manifest, unused, folder)
    for line in [as_json_text(answer)] if as_json else told:
        say(line)


def _read(
    files: list[Path], home: Path, *, with_bundled: bool
) -> tuple[list[InputPoint], dict[str, int]]:
    """The points of files, else those measured here; and what of them cannot be used, by reason."""
    found: list[InputPoint] = []
    unused: dict[str, int] = {}
    for some, left_out in [_of_file(file) for file in files] or [kept_points(home)]:
        found += some
        for why, count in left_out.items():
            unused[why] = unused.get(why, 0) + count
    found += bundled_input_points() if with_bundled else ()
    if not found:
        raise InputError(
            "there are no measured inputs",
            why=f"{sum(unused.values())} results cannot be used" if unused else "",
            fix="measure some: advisor power input --preset T4 --preset T9 --preset T12; or give a "
            "file with --points",
        )
    return found, unused


def _of_file(file: Path) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """Points, or results as `advisor power input` keeps them, which have a case."""
    try:
        with file.open("rb") as lines:
            is_kept = b'"case":' in lines.readline().replace(b" ", b"")
    except OSError:
        is_kept = False  # the reader says why
    return points_of(read_kept(file)) if is_kept else (read_input_points(file), {})


def _to_json(
    trained: TrainedInputs, manifest: InputManifest, unused: dict[str, int], folder: Path
) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "points": len(trained.points),
        "held_back": manifest.dataset.held_back,
        "patterns": list(manifest.dataset.patterns),
        "dtypes": {of.dtype: of.points for of in manifest.types},
        "left_out": {**unused, **trained.left_out},
        "sha256": manifest.dataset.sha256,
        "coverage": manifest.coverage,
        "bounds": {of.dtype: to_plain(of.bounds) for of in manifest.types},
        "figures": dict(manifest.figures),
        "files": [str(folder / name) for name in (*manifest.files, "manifest.json")],
    }


def _lines(manifest: InputManifest, unused: dict[str, int]) -> Iterator[str]:
    facts, figures = manifest.dataset, manifest.figures
    types = ", ".join(f"{of.points} of {of.dtype}" for of in manifest.types)
    yield f"{count_of(facts.points, 'point')}, {facts.held_back} with the clock held back: {types}"
    for why, count in {**unused, **facts.left_out}.items():
        yield f"left out {count}: {why}"
    yield f"For data of a pattern that was left out, of {len(facts.patterns)}:"
    yield from _error_lines(figures)
    real = {n.removeprefix("real_"): v for n, v in figures.items() if n.startswith("real_")}
    if real:
        yield "For tensors of files, learned from drawn data alone:"
        yield from _error_lines(real)
    if (noise := figures.get("reference_noise_percent")) is not None:
        yield f"  the same product, measured again, differs by {noise:.2f} %: nothing can be better"
    yield (
        f"  intervals for {manifest.coverage:.0%} hold {figures['coverage_percent']:.1f} % of the "
        "powers above idle of patterns left out"
    )
    yield f"model {manifest.version}"


def _error_lines(figures: Mapping[str, float]) -> Iterator[str]:
    for kind, word in _KINDS.items():
        if f"{kind}_points" in figures:
            yield f"  {word}, {figures[f'{kind}_points']:.0f} points, off by (nine of ten within)"
            yield from _method_lines(figures, kind)


def _method_lines(figures: Mapping[str, float], kind: str) -> Iterator[str]:
    end = f"_{kind}_mean_error_percent"
    names = (key.removesuffix(end) for key in figures if key.endswith(end))
    for method in (name for name in names if not name.startswith("real_")):
        mean, p90 = (figures[f"{method}_{kind}_{what}_error_percent"] for what in ("mean", "p90"))
        yield f"    {method:<12} {mean:5.2f} % ({p90:.2f} %)"
