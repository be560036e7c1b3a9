"""`advisor power input`: the power of a product by what its matrices are filled with."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from advisor.errors import InputError, JobError
from advisor.settings import read_settings
from advisor.wire.power import InputAsked
from advisor_cli.console import plain_console, print_table
from advisor_cli.options import AllowUnsafe, AsJson
from advisor_cli.power.input_text import (
    input_table,
    note_lines,
    predicted_lines,
    predicted_table,
    refused_line,
    step_line,
)
from advisor_cli.progress import counted
from advisor_cli.say import as_json_text, say
from advisor_cli.stopping import stoppable
from advisor_power.gpu_worker import WorkerPlace
from advisor_power.inputs.case import InputCase, case_of, parse_shape
from advisor_power.inputs.keeping import newest_of
from advisor_power.inputs.live import WINDOW_S, InputRun, open_inputs
from advisor_power.inputs.measuring import AskedCases, Outcome, Step, measure_cases
from advisor_power.inputs.predicting.asked import predictions, with_features
from advisor_power.inputs.reference import with_ratios
from advisor_power.inputs.result import InputPower
from advisor_power.model.find import load_input_model
from advisor_power.operands.grammar import OperandPair, parse_operands
from advisor_power.operands.presets import SWEEPS
from advisor_power.operands.words import DTYPES


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
        int | None, typer.Option(min=1, help="SMs, under MPS; else the whole GPU")
    ] = None,
    gpu: Annotated[str, typer.Option(help="Index or UUID")] = "0",
    python: Annotated[str, typer.Option(help="Interpreter that has PyTorch")] = "python3",
    window: Annotated[float, typer.Option(min=0.5, help="Longest window, s")] = WINDOW_S,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what is kept")] = False,
    allow_unsafe: AllowUnsafe = False,
    predict: Annotated[
        bool, typer.Option("--predict", help="Ask the model, without a GPU: advisor power train")
    ] = False,
    gpu_model: Annotated[
        str | None, typer.Option(help="With --predict; such as 'NVIDIA H100 80GB HBM3'")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What power does a product of matrices draw, filled with these data?

    Each case is computed in a steady loop, its output is checked, and power is measured over a
    window, with normal random numbers as a reference in between. Results are kept: after Ctrl-C
    the same command goes on. docs/input-power.md.

    Example: advisor power input zeros --predict
    """
    cases = _cases_of(operands or [], preset or [], shape, dtype)
    if predict:
        _predict(cases, units, gpu_model, as_json)
        return
    place = WorkerPlace(gpu=gpu, units=units, python=python, allow_unsafe=allow_unsafe)
    console = plain_console(stderr=True)
    with stoppable(console), open_inputs(read_settings(), place, window) as run:
        if not run.knows_sensor:
            console.print(
                "there is no record of this card's power sensor, so waits are long ones: "
                "advisor power sensor",
                soft_wrap=True,
            )
        outcome = _measure(run, cases, fresh, console)
        found = _results_of(run, cases)
    _show(found, outcome, as_json)


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
        pairs += _sweep(name, dtype)
    if not pairs:
        raise InputError(
            "no operands were given",
            fix="write them, as in advisor power input 'normal(0,1)', or name a --preset T12",
        )
    sizes = parse_shape(shape)
    return list(dict.fromkeys(case_of(str(pair), sizes, dtype) for pair in pairs))


def _results_of(run: InputRun, cases: Sequence[InputCase]) -> list[InputPower]:
    """The newest result of each case, with its ratio to the references around it."""
    found = newest_of(with_ratios(run.keep.read()), cases, run.bench.conditions)
    return [found[case] for case in cases if case in found]


def _sweep(name: str, dtype: str) -> list[OperandPair]:
    sweep = next((s for s in SWEEPS if f"T{s.takeaway}" == name.upper()), None)
    if sweep is None:
        raise InputError(f"--preset {name} is not known", fix=f"there are T1 to T{len(SWEEPS)}")
    return list(sweep.pairs(dtype).values())


def _predict(
    cases: Sequence[InputCase], units: int | None, gpu_model: str | None, as_json: bool
) -> None:
    """What the model in use expects of the cases."""
    model = load_input_model(read_settings().home, gpu_model)
    asked = [
        InputAsked(
            operands=case.operands,
            shape=case.shape,
            dtype=case.dtype,
            units=units,
            gpu_model=gpu_model,
        )
        for case in cases
    ]
    filled = counted(map(with_features, asked), len(asked), "inputs")
    found = predictions(model, filled)
    if as_json:
        say(as_json_text(found))
        return
    print_table(predicted_table(found.predictions), width=140)
    for line in predicted_lines(found, model.manifest):
        say(line)


def _measure(run: InputRun, cases: Sequence[InputCase], fresh: bool, console: Console) -> Outcome:
    def report(step: Step) -> None:
        console.print(f"  {step_line(step)}", highlight=False, soft_wrap=True)

    asked = AskedCases(cases=cases, session=run.name, fresh=fresh)
    return measure_cases(run.bench, run.filling, asked, run.keep, report)


def _show(found: Sequence[InputPower], outcome: Outcome, as_json: bool) -> None:
    if as_json:
        refused = [
            {"operands": case.operands, "message": str(error)}
            for case, error in outcome.refused.items()
        ]
        say(as_json_text({"inputs": [r.as_json() for r in found], "refused": refused}))
    else:
        if found:
            print_table(input_table(found))
        for line in note_lines(found):
            say(line)
        for case, error in outcome.refused.items():
            say(refused_line(case, error))
    if outcome.refused:
        raise typer.Exit(JobError.exit_code)
