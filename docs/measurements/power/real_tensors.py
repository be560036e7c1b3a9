"""N5: what products of the tensors of a real network draw, against normal random numbers.

    .venv/bin/python docs/measurements/power/real_tensors.py FOLDER --python python3 --minutes 10

makes FOLDER by network_tensors.py on the GPU, where it is not there yet: weights and activations of
a small language model before and after 90 s of training. Then it measures the products that the
network computes of them in bf16, in int8 (quantised) and in fp8 (scaled to the range of e4m3), with
the reference of `advisor power input` in between, keeps each result in the advisor's home at once,
and prints the table. The same command goes on; `--minutes 0` prints what is there, without a GPU if
`--gpu` is the UUID of a card that was measured before. A product takes 4 to 6 s, the network 120 s.

Softmax is of one head and multiplied with the values of all heads, queries of all heads with keys
of all heads, so that each product is as large as the others.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from inputs import BELOW, WHOLE, Round, missing
from rich.console import Console

from advisor.errors import InputError, JobError
from advisor.settings import Settings, read_settings
from advisor_cli.shared.stopping import stoppable
from advisor_power.gpu_worker import WorkerPlace
from advisor_power.inputs.case import InputCase, case_of
from advisor_power.inputs.keeping import input_lines
from advisor_power.inputs.live import open_inputs
from advisor_power.inputs.measuring import Asked, Step, measure_cases
from advisor_power.inputs.reference import reference_for, with_ratios
from advisor_power.inputs.result import InputPower
from advisor_power.operands.fingerprint import Fingerprint
from advisor_power.operands.presets import USUAL
from advisor_profiling.testbed.live import find_gpu

MAKER = Path(__file__).resolve().with_name("network_tensors.py")
MADE = "tensors.json"
"""Is in a folder that is complete."""

MAKING_S = 300.0
"""Beside training: importing PyTorch, reading the text, writing files."""

WHENS = ("after", "before")
LAYERS = {
    "LayerNorm": ("layernorm", "weight-up"),
    "GELU": ("gelu", "weight-gelu"),
    "ReLU": ("relu", "weight-relu"),
}
"""An activation, and the weight of the linear layer that takes it."""

FP8_MAX = 448.0
SHOWN = 3
DIFFERENT = 0.02
"""Of a feature, as a part of bits or elements: less is not named."""


def main() -> None:
    """The command line."""
    options = _parser().parse_args()
    settings, console = read_settings(), Console(stderr=True, markup=False, highlight=False)
    end_s = time.monotonic() + 60 * options.minutes
    python = options.python
    if os.sep in python:
        python = str(Path(python).absolute())
    folder = options.folder.absolute()
    if options.minutes > 0 and not (folder / MADE).exists():
        with stoppable(console):
            make(folder, python, options, settings)
    cases = real_cases(folder)
    asked = Round(options.units, tuple(cases))
    if options.minutes > 0 and missing(find_gpu(options.gpu), asked):
        where = WorkerPlace(gpu=options.gpu, python=python)
        with stoppable(console):
            measure(where, asked, end_s, settings, console)
    uuid = options.gpu if options.gpu.startswith("GPU-") else find_gpu(options.gpu).uuid
    kept = with_ratios(input_lines(settings.home, uuid).read())
    print((folder / MADE).read_text())
    for line in table(kept, cases, options.units):
        print(line)


def make(folder: Path, python: str, options: argparse.Namespace, settings: Settings) -> None:
    """Train the network.

    Raises:
        JobError: it failed, or took too long; its own output says why.
    """
    command = [python, str(MAKER), str(folder), "--side", str(options.side)]
    command += ["--seconds", str(options.seconds)]
    gpu = find_gpu(options.gpu).uuid
    try:
        subprocess.run(
            command,
            env={**settings.job_environment(), "CUDA_VISIBLE_DEVICES": gpu},
            check=True,
            timeout=options.seconds + MAKING_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JobError(
            "the network could not be trained",
            why=str(error),
            fix="--python must be a Python with PyTorch and NumPy; the messages above say more",
        ) from error


def real_cases(folder: Path) -> dict[InputCase, str]:
    """What is measured, by what it is; most telling first.

    Their texts have names of files and not the folder, so that they are the same everywhere: who
    reads them works in the folder.

    Raises:
        InputError: the folder has no tensors, or others than are expected.
    """
    if not (folder / MADE).exists():
        raise InputError(
            f"{folder} has no {MADE}", fix="measure with --minutes 10, which makes the tensors"
        )
    os.chdir(folder)
    found: dict[InputCase, str] = {}
    for dtype, when, name, a, b in products():
        text = f"a={_operand(a, dtype)}; b={_operand(b, dtype)}"
        sizes = [_shape(part) for part in (b, a) if not part.startswith("normal")]
        (n, k), m = sizes[0], sizes[-1][0]
        found[case_of(text, (m, n, k), dtype)] = f"{name}, {when}"
    return found


def products() -> Iterator[tuple[str, str, str, str, str]]:
    """Type, before or after training, what it is, and files or drawn numbers of A and B."""
    usual = {dtype: str(USUAL.pairs(dtype)[0.0].a) for dtype in ("bf16", "fp8", "int8")}
    for when in WHENS:
        for name, (a, b) in LAYERS.items():
            yield "bf16", when, f"{name} x weights", f"{a}-{when}", f"{b}-{when}"
        values = f"values-transposed-{when}"
        yield "bf16", when, "softmax x values", f"softmax-{when}", values
        yield "bf16", when, "queries x keys", f"queries-{when}", f"keys-{when}"
        yield "bf16", when, "normal x weights", usual["bf16"], f"weight-up-{when}"
        back = f"weight-up-dequantised-{when}"
        yield "bf16", when, "LayerNorm x weights of int8", f"layernorm-{when}", back
    for dtype, kind in (("int8", "-int8"), ("fp8", "")):
        for when in WHENS:
            for name, (a, b) in LAYERS.items():
                yield dtype, when, f"{name} x weights", f"{a}{kind}-{when}", f"{b}{kind}-{when}"
            yield dtype, when, "normal x weights", usual[dtype], f"weight-up{kind}-{when}"


def measure(
    where: WorkerPlace, asked: Round, end_s: float, settings: Settings, console: Console
) -> None:
    """The cases that are not kept, as far as time goes."""
    where = replace(where, units=None if asked.units == WHOLE else asked.units)

    def report(step: Step) -> None:
        left_s = min(step.eta_s, end_s - time.monotonic())
        console.print(f"  {step.done}/{step.total} {step.case}, {left_s:.0f} s left")

    with open_inputs(settings, where) as run:
        all_of_it = Asked(cases=asked.cases, session=run.name, end_s=end_s)
        outcome = measure_cases(run.bench, run.filling, all_of_it, run.keep, report)
    for case, error in outcome.refused.items():
        console.print(f"not measured: {case}: {error}")
    if outcome.left:
        console.print(f"{outcome.left} cases are left: run the same command again")


def table(kept: Sequence[InputPower], cases: Mapping[InputCase, str], units: int) -> Iterator[str]:
    """A row of Markdown for each product that was measured, under the newest conditions."""
    of_cases = [r for r in kept if r.case in cases and r.conditions.units == units]
    if not of_cases:
        yield "nothing was measured yet"
        return
    where = max(of_cases, key=lambda r: r.moment_s).conditions
    newest = {r.case: r for r in of_cases if r.conditions == where}
    usual = {r.case: r.fingerprint for r in kept if r.is_reference and r.conditions == where}
    yield f"{where.gpu_model}, {where.units} SMs, driver {where.driver}, torch {where.torch}\n"
    columns = ("type", "product", "W", "over reference, W", "+-", "%", "MHz")
    yield f"| {' | '.join(columns)} | features that differ (of the reference) | flags |"
    yield "|---" * (len(columns) + 2) + "|"
    for case, name in cases.items():
        if case in newest:
            reference = usual.get(reference_for(case.shape, case.dtype, case.work))
            yield _row(name, newest[case], reference)


def features_that_differ(found: Fingerprint, usual: Fingerprint) -> list[str]:
    """The features that are farthest from those of the reference, with theirs in parentheses."""
    ours, theirs = _features(found), _features(usual)
    order = sorted(ours, key=lambda name: -abs(ours[name] - theirs[name]))
    return [
        f"{name} {ours[name]:.2f} ({theirs[name]:.2f})"
        for name in order[:SHOWN]
        if abs(ours[name] - theirs[name]) >= DIFFERENT
    ]


def _row(name: str, result: InputPower, usual: Fingerprint | None) -> str:
    watts = (f"{result.power_w.value:.1f}", *_over(result))
    found, clock = result.fingerprint, result.sm_clock_mhz
    features = ", ".join(features_that_differ(found, usual)) if found and usual else ""
    shown = ("" if clock is None else f"{clock:.0f}", features, " ".join(result.flags))
    return f"| {' | '.join((result.case.dtype, name, *watts, *shown))} |"


def _over(result: InputPower) -> tuple[str, str, str]:
    """Watts over the reference at that moment, half their 95 % interval, and percent."""
    ratio = result.reference_ratio
    if ratio is None or ratio.high is None:
        return "", "", ""
    reference_w = result.power_w.value / ratio.value
    over_w, margin_w = reference_w * (ratio.value - 1), reference_w * (ratio.high - ratio.value)
    return f"{over_w:+.1f}", f"{margin_w:.1f}", f"{100 * ratio.value - 100:+.1f}"


def _features(found: Fingerprint) -> dict[str, float]:
    """By the names that the predictor has for them."""
    plain = asdict(found)
    sides = {side: plain.pop(side) for side in ("a", "b")}
    of_sides = {f"{side}_{name}": x for side, of in sides.items() for name, x in of.items()}
    return of_sides | plain


def _operand(part: str, dtype: str) -> str:
    """A file or drawn numbers; in fp8 a scale brings the largest to the end of the range."""
    if part.startswith("normal"):
        return part
    text = f'file("{part}.npy")'
    if dtype != "fp8":
        return text
    largest = float(np.abs(np.load(f"{part}.npy", mmap_mode="r")).max())
    return f"{text}|scale({FP8_MAX / largest:g})" if largest else text


def _shape(part: str) -> tuple[int, int]:
    rows, columns = np.load(f"{part}.npy", mmap_mode="r").shape
    return rows, columns


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--units", type=int, default=BELOW, help=f"SMs; {WHOLE}: the whole GPU")
    parser.add_argument("--seconds", type=float, default=90, help="of training")
    parser.add_argument("--side", type=int, default=4096, help="of the network's matrices")
    return parser


if __name__ == "__main__":
    main()
