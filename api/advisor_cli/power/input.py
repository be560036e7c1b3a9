"""`advisor power input`: the power of a product by what its matrices are filled with."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from advisor.core.objectives import Interval
from advisor.core.wording import count_of, folded
from advisor.errors import AdvisorError, InputError, JobError
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor.wire.power import Estimate, InputPoint, InputPrediction, InputQuery
from advisor_cli.console import (
    AllowUnsafe,
    AsJson,
    Columns,
    WithBundled,
    as_json_text,
    plain_console,
    print_table,
    say,
    say_lines,
    table_of,
)
from advisor_cli.measure.testbeds import stoppable
from advisor_cli.progress import counted, leaving_out
from advisor_data.bundled import bundled_input_points, read_input_points
from advisor_power.data import training
from advisor_power.data.measuring import (
    WINDOW_S,
    InputCase,
    InputPower,
    case_of,
    kept_inputs,
    measure_cases,
    newest_of,
    open_inputs,
    parse_shape,
    read_kept,
    with_ratios,
)
from advisor_power.data.operands import DTYPES, SWEEPS, parse_operands
from advisor_power.data.predictor import (
    InputManifest,
    load_input_model,
    model_folder,
    predictions,
    with_features,
)
from advisor_power.gpu_worker import WorkerPlace

_NOTES = {
    "non-finite-operands": "matrices hold NaN or infinity: that lowers power",
    "saturated-operands": "values were beyond the range of int8, and became its ends",
    "non-finite-outputs": "outputs are NaN or infinite: sums overflowed, or operands were so",
    "wrong-outputs": "outputs are not those of float64: at this number of SMs, do not use them",
    "power-limit": "the power limit held the clock back: data show as speed",
    "throttled": "the clock was held back by something else than the power limit",
    "not-settled": "power or rate still moved when the window began",
}

_UNLIKE = {
    "shape": "this shape was never measured with this type: it is taken to run as the nearest one",
    "units": "this number of SMs was never measured with this type: each is taken to run as there",
    "fingerprint": "data as these were never measured with this type",
}


def note_lines(results: Sequence[InputPower]) -> Iterator[str]:
    """Where it was measured, and what the flags mean."""
    if not results:
        return
    where = results[0].conditions
    yield f"{where.gpu_model}, {where.units or '?'} SMs, driver {where.driver}; 95 % intervals"
    yield from (
        f"{flag}: {_NOTES[flag]}"
        for flag in dict.fromkeys(flag for result in results for flag in result.flags)
    )


PREDICTED: Sequence[tuple[str, Callable[[InputPrediction], object]]] = (
    ("W", lambda product: _bounds(product.power_w, "{:.0f}")),
    ("of reference", lambda product: _or_none(product.usual_ratio, "{:.3f}")),
    ("T/s", lambda product: _bounds(product.work_per_s.times(1e-12), "{:.4g}")),
    ("J", lambda product: _bounds(product.energy_j, "{:.3g}")),
    ("MHz", lambda product: f"{product.clock_mhz:.0f}{' at limit' if product.at_limit else ''}"),
    (
        "most by",
        lambda product: (
            product.most and f"{product.most.feature} {product.most.difference_w:+.0f} W"
        ),
    ),
)
"""Power, over that of the reference, speed, energy, clock, and which feature does most."""


def predicted_table(products: Sequence[InputPrediction]) -> Table:
    """A line for each product whose power was asked for."""
    columns: Columns[InputPrediction] = (
        ("operands", lambda product: product.operands or "fingerprint"),
        *PREDICTED,
        ("unlike", lambda product: " ".join(product.unmeasured)),
    )
    return table_of(columns, products)


def _notes_of(products: Sequence[InputPrediction]) -> Iterator[str]:
    """What of predictions was never measured, and when heat may make them slower, once each."""
    yield from (
        f"unlike, {name}: {_UNLIKE[name]}. How far that is off, the interval does not say"
        for name in dict.fromkeys(name for product in products for name in product.unmeasured)
    )
    if odd := sum(product.features["sum_non_finite"] > 0 for product in products):
        yield (
            f"{odd} of these have NaN or infinity in their sums, so their results are no numbers, "
            "they draw less for it, and the interval is not for them: look at the data, "
            "or scale them"
        )
    if hot := [
        product.heat_w
        for product in products
        if product.heat_w and product.power_w.value > product.heat_w
    ]:
        yield (
            f"{len(hot)} of these draw more than {min(hot):.0f} W, from which on heat held back "
            "the clock of the measured card: with cooling like that, power and speed are lower"
        )


def _bounds(interval: Interval, form: str) -> str:
    value, low, high = (form.format(each) for each in (interval.value, interval.low, interval.high))
    return value if low == high else f"{value} ({low}-{high})"


_MEASURED: Columns[InputPower] = (
    ("operands", lambda result: result.case.operands),
    ("W", lambda result: _within(result.power_w, "{:.1f}")),
    ("of reference", lambda r: r.reference_ratio and _within(r.reference_ratio, "{:.3f}")),
    ("T/s", lambda result: f"{result.rate.value * result.case.launch_work / 1e12:.4g}"),
    ("pJ/operation", lambda result: f"{result.energy_pj:.4g}"),
    ("above idle", lambda result: _or_none(result.energy_above_idle_pj, "{:.4g}")),
    ("MHz", lambda result: _or_none(result.sm_clock_mhz, "{:.0f}")),
    ("C", lambda result: _or_none(result.temperature_c, "{:.0f}")),
    ("flags", lambda result: " ".join(result.flags)),
)


def _or_none(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def _within(estimate: Estimate, form: str) -> str:
    if estimate.high is None:
        return form.format(estimate.value)
    return f"{form.format(estimate.value)} +-{form.format(estimate.high - estimate.value)}"


def input_power(
    operands: Annotated[
        list[str] | None, typer.Argument(help="Such as 'normal(0,1)|sparse(0.5)'", metavar="EXPR")
    ] = None,
    shape: Annotated[str, typer.Option(help="M x N x K: A is M by K, B is K by N")] = (
        "4096x4096x4096"
    ),
    dtype: Annotated[str, typer.Option(help=", ".join(DTYPES))] = "bf16",
    preset: Annotated[
        list[str] | None, typer.Option(help="A sweep of the paper, T1 to T15; may be repeated")
    ] = None,
    units: Annotated[
        int | None, typer.Option(min=1, help="Number of SMs, under MPS (default: the whole GPU)")
    ] = None,
    gpu: Annotated[str, typer.Option(help="Index or UUID")] = "0",
    python: Annotated[str, typer.Option(help="Python interpreter with PyTorch")] = "python3",
    window: Annotated[float, typer.Option(min=0.5, help="Longest window, s")] = WINDOW_S,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore stored results and measure again")
    ] = False,
    allow_unsafe: AllowUnsafe = False,
    predict: Annotated[
        bool,
        typer.Option(
            "--predict", help="Predict with the model of `advisor power train`; needs no GPU"
        ),
    ] = False,
    gpu_model: Annotated[
        str | None, typer.Option(help="GPU model for --predict, such as 'NVIDIA H100 80GB HBM3'")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the power of a matrix product with these input data.

    Each case is computed in a steady loop, its output is checked, and power is measured over a
    window, with normal random numbers as a reference in between. Results are kept: after Ctrl-C
    the same command goes on. More in docs/input-power.md.

    Example: advisor power input zeros --predict
    """
    cases = _cases_of(operands or [], preset or [], shape, dtype)
    if predict:
        _predict(cases, units, gpu_model, as_json)
        return
    console = plain_console(stderr=True)
    with (
        stoppable(console),
        open_inputs(
            read_settings(),
            WorkerPlace(gpu=gpu, units=units, python=python, allow_unsafe=allow_unsafe),
            window,
        ) as run,
    ):
        if not run.knows_sensor:
            console.print(
                "there is no record of this card's power sensor, so waits are long ones: "
                "advisor power sensor",
                soft_wrap=True,
            )

        refused = measure_cases(
            run,
            cases,
            lambda step: console.print(f"  {step}", highlight=False, soft_wrap=True),
            fresh=fresh,
        )
        newest = newest_of(with_ratios(run.keep.read()), cases, run.bench.conditions)
        results = [newest[case] for case in cases if case in newest]
    _show(results, refused, as_json)


def _cases_of(
    operands: Sequence[str], presets: Sequence[str], shape: str, dtype: str
) -> list[InputCase]:
    """What was asked for, each case once.

    Raises:
        InputError: nothing was, or something of it is not known.
    """
    if dtype not in DTYPES:
        raise InputError(f"--dtype {dtype} is not known", fix=f"there are {', '.join(DTYPES)}")
    pairs = [parse_operands(text) for text in operands]
    for name in presets:
        sweep = next((s for s in SWEEPS if f"T{s.takeaway}" == name.upper()), None)
        if sweep is None:
            raise InputError(f"--preset {name} is not known", fix=f"there are T1 to T{len(SWEEPS)}")
        pairs += sweep.pairs(dtype).values()
    if not pairs:
        raise InputError(
            "no operands were given",
            fix="write them, as in advisor power input 'normal(0,1)', or name a --preset T12",
        )
    return list(dict.fromkeys(case_of(str(pair), parse_shape(shape), dtype) for pair in pairs))


def _predict(
    cases: Sequence[InputCase], units: int | None, gpu_model: str | None, as_json: bool
) -> None:
    model = load_input_model(read_settings().home, gpu_model)
    inputs = [
        InputQuery(
            operands=case.operands,
            shape=case.shape,
            dtype=case.dtype,
            units=units,
            gpu_model=gpu_model,
        )
        for case in cases
    ]
    answer = predictions(model, counted(map(with_features, inputs), len(inputs), "inputs"))
    if as_json:
        say(as_json_text(answer))
        return
    print_table(predicted_table(answer.predictions))
    # What the predictions rest on, and what of them does not.
    first, manifest = answer.predictions[0], model.manifest
    cards = ", ".join(card.gpu_model for card in manifest.known.cards)
    rest = (
        f"expected of {first.gpu_model}, {first.units} SMs, not measured; {answer.coverage:.0%} "
        f"intervals; model {manifest.version}, {manifest.dataset.points} measured inputs on {cards}"
    )
    say_lines(folded(line, 80) for line in (rest, *_notes_of(answer.predictions)))


def _show(
    results: Sequence[InputPower], refused: Mapping[InputCase, AdvisorError], as_json: bool
) -> None:
    if as_json:
        told = {
            "inputs": [r.as_json() for r in results],
            "refused": [
                {"operands": c.operands, "message": str(error)} for c, error in refused.items()
            ],
        }
        say(as_json_text(told))
    else:
        if results:
            print_table(table_of(_MEASURED, results))
        say_lines(note_lines(results))
        say_lines(f"not measured: {case}: {error}" for case, error in refused.items())
    if refused:
        raise typer.Exit(JobError.exit_code)


_KINDS = {
    "power": "power by the data alone, where nothing held the clock back",
    "speed": "speed by the data and the power that limit or heat left",
    "energy": "power at the speed that was measured, everywhere",
}


def train(
    points: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of points, repeatable: points.jsonl of a model, or a file in "
            "inputs/ of the home folder (default: those measured here)"
        ),
    ] = None,
    with_bundled: WithBundled = False,
    gpu_model: Annotated[
        str | None,
        typer.Option(help="GPU model to train on (default: the one with the most points)"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the model (default: in the home folder, where it is used)"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train the model of input data and power on the points of `advisor power input`.

    Leaves out each data pattern once, to measure the error for unseen data. Writes trees,
    points.jsonl and manifest.json.

    Example: advisor power train
    """
    settings = read_settings()
    measured, unused = _read(points or [], settings.home, with_bundled=with_bundled)
    folder = out or model_folder(settings.home)
    with leaving_out() as on_stage:
        trained = training.fit_inputs(measured, on_stage("fitting"), gpu_model)
    manifest = training.write_input_model(folder, trained)
    told = {
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
    lines = [as_json_text(told)] if as_json else [*_lines(manifest, unused), f"written: {folder}"]
    say_lines(lines)


def _read(
    files: list[Path], home: Path, *, with_bundled: bool
) -> tuple[list[InputPoint], dict[str, int]]:
    """The points of files, else those measured here; and what of them cannot be used, by reason."""
    points_read: list[InputPoint] = []
    unused = Counter[str]()
    of_home = [] if files else [training.points_of(kept_inputs(home))]
    for some, left_out in [*map(_of_file, files), *of_home]:
        points_read += some
        unused.update(left_out)
    points_read += bundled_input_points() if with_bundled else ()
    if not points_read:
        raise InputError(
            "there are no measured inputs",
            why=f"{sum(unused.values())} results cannot be used" if unused else "",
            fix="measure some: advisor power input --preset T4 --preset T9 --preset T12; or give a "
            "file with --points",
        )
    return points_read, unused


def _of_file(file: Path) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """Points, or results as `advisor power input` keeps them, which have a case."""
    try:
        with file.open("rb") as lines:
            is_kept = b'"case":' in lines.readline().replace(b" ", b"")
    except OSError:
        is_kept = False  # the reader says why
    return training.points_of(read_kept(file)) if is_kept else (read_input_points(file), {})


def _lines(manifest: InputManifest, unused: dict[str, int]) -> Iterator[str]:
    facts, figures = manifest.dataset, manifest.figures
    types = ", ".join(f"{of.points} of {of.dtype}" for of in manifest.types)
    yield f"{count_of(facts.points, 'point')}, {facts.held_back} with the clock held back: {types}"
    yield from (f"left out {count}: {why}" for why, count in {**unused, **facts.left_out}.items())
    yield f"For data of a pattern that was left out, of {len(facts.patterns)}:"
    yield from _error_lines(figures)
    if real := {n.removeprefix("real_"): v for n, v in figures.items() if n.startswith("real_")}:
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
        if f"{kind}_points" not in figures:
            continue
        yield f"  {word}, {figures[f'{kind}_points']:.0f} points, off by (nine of ten within)"
        yield from (
            f"    {method:<12} {figures[f'{method}_{kind}_mean_error_percent']:5.2f} % "
            f"({figures[f'{method}_{kind}_p90_error_percent']:.2f} %)"
            for method in training.METHODS
        )
