"""How far off is the power of pairs whose data are not those of the profile, before and after?

    .venv/bin/python docs/measurements/power/data_pairs.py FOLDER --model MODEL --tensors TENSORS
    ... --evaluate                 only the table of what FOLDER has, without a GPU

TENSORS is a folder of real_tensors.py. FOLDER gets the elements of matrices, a job for each
product, fingerprints, and a home. Profiles are of the product of normal random numbers and of its
partners; each product of other data is measured together with each partner, and so is that of
random numbers. One table has each product alone on the whole GPU, the other compares pairs as they
were measured with

- profile: the power measured of the same pair with random numbers, as it is, and corrected;
- model: what the model of pairs predicts of the profiles, as it is, and with `--data`.

It needs a model of power by data of this GPU model: a folder of `advisor power train --out`. The
same command goes on.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from measured_pair import MeasuredPair, at_limit
from product_points import OPERANDS, RANDOM, partner_of, product_of, split_of

from advisor.core.gpu import WHOLE
from advisor.core.records import PairPoint
from advisor.core.split import Split
from advisor.formats.wire import read_tolerant, to_plain
from advisor.settings import Settings, read_settings
from advisor.wire.input_power import InputFingerprint
from advisor_advice.power.other_data import OtherData, other_data
from advisor_advice.site.known_profiles import ProfileSet, find_profiles
from advisor_data import open_store
from advisor_models.registry import Registry
from advisor_power.model.predictor import InputPredictor
from advisor_power.operands.fill import fill_pair
from advisor_power.operands.from_file import pinned
from advisor_power.operands.grammar import parse_operands
from advisor_power.operands.of_job import SIDE, fingerprint_of

ROOT = Path(__file__).resolve().parents[3]
WORKLOADS = ROOT / "profiling/workloads"
PRINTS = "fingerprints.json"
DTYPE = "bf16"
PARTNERS = ("sorting", "gemm", "resnet50-train-b32")
"""They leave room below the power limit, at which data show as speed: beside triad and reduction 15
of 24 splits were at the limit of an H100."""

SPLITS = ("26/26", "26/50")
"""34 and 66 SMs, at which libraries compute right results."""

SHARES = "26,50,100"

HELD_BACK = ("nothing held the clock back", "at the limit", "held back below the limit")
"""Data show as power, as speed, and nobody knows as what: what holds a clock back at 600 W is heat
or another limit than that of power, and it holds back one kind of data and not another."""

WHOLE_GPU = "100"
"""Of products with other data, which no profile is of."""


@dataclass(frozen=True, slots=True)
class Row:
    """A pair at a split; errors are relative.

    Attributes:
        held_back: What did, with these data or with random numbers: one of HELD_BACK.
    """

    pair: tuple[str, str]
    split: str
    measured_w: float
    held_back: str
    profile: tuple[float, float]
    model: tuple[float, float]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="of power by data, a folder")
    parser.add_argument("--tensors", type=Path, help="folder of real_tensors.py")
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--evaluate", action="store_true", help="measure nothing")
    options = parser.parse_args()
    folder = options.folder.absolute()
    os.environ |= {"ADVISOR_HOME": str(folder / "home"), "ADVISOR_JOBS": str(folder / "jobs")}
    if not options.evaluate:
        prepare(folder, options.tensors.absolute(), options.python)
        measure(folder, options.gpu)
    settings = read_settings()
    model, data = InputPredictor(options.model), fingerprints(folder)
    for line in (*alone_table(settings, model, data), "", *table(rows(settings, model, data))):
        print(line)


def prepare(folder: Path, tensors: Path, python: str) -> None:
    """Elements of the matrices, a job for each product, and the plan."""
    (folder / "jobs").mkdir(parents=True, exist_ok=True)
    os.chdir(tensors)
    for name, operands in OPERANDS.items():
        pair = pinned(parse_operands(operands))
        files = [folder / f"{name}-{side}.bin" for side in "ab"]
        a, b = fill_pair(pair, (SIDE, SIDE, SIDE), DTYPE)
        for file, matrix in zip(files, (a.matrix, b.matrix.T), strict=True):
            np.ascontiguousarray(matrix).view(np.uint8).tofile(file)
        command = [python, "tensor_ops.py", "matmul", "--size", str(SIDE), "--inner", "40"]
        command += ["--dtype", DTYPE, "--operands", *map(str, files)]
        job = {
            "name": name,
            "command": shlex.join(command),
            "workdir": str(WORKLOADS),
            "progress": {"kind": "counter", "unit": "matrices", "gate": True},
            "memory_mib": 1000,
            "results": {"tolerance": 0.05},
            # Of others the file's folder would have to be the working one.
            "input": {"dtype": DTYPE} | ({"data": operands} if name == RANDOM else {}),
        }
        (folder / f"jobs/{name}.yaml").write_text(yaml.safe_dump(job))
    known = {name: fingerprint_of(DTYPE, operands) for name, operands in OPERANDS.items()}
    (folder / PRINTS).write_text(json.dumps(to_plain(known)))
    for partner in PARTNERS:
        job = yaml.safe_load((ROOT / f"jobs/{partner}.yaml").read_text())
        job["workdir"] = str(WORKLOADS)
        (folder / f"jobs/{partner}.yaml").write_text(yaml.safe_dump(job))
    pairs = [[product, partner] for product in OPERANDS for partner in PARTNERS]
    plan = {"name": "data-pairs", "measure": [{"pairs": pairs, "splits": list(SPLITS)}]}
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))


def measure(folder: Path, gpu: str) -> None:
    """Profiles first, then pairs; what is there is not measured again."""
    for job in (RANDOM, *PARTNERS, *OPERANDS):
        shares = SHARES if job in (RANDOM, *PARTNERS) else WHOLE_GPU
        _advisor("profile", str(folder / f"jobs/{job}.yaml"), "--shares", shares, "--gpu", gpu)
    _advisor("colocate", str(folder / "plan.yaml"), "--gpu", gpu)


def _advisor(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "advisor_cli", *words], check=False)
    if done.returncode:
        print(f"advisor {shlex.join(words)} ended with {done.returncode}", file=sys.stderr)


def fingerprints(folder: Path) -> dict[str, InputFingerprint]:
    """What each product multiplies."""
    known = json.loads((folder / PRINTS).read_text())
    return {name: read_tolerant(InputFingerprint, json.dumps(of)) for name, of in known.items()}


def alone_table(
    settings: Settings, model: InputPredictor, data: Mapping[str, InputFingerprint]
) -> Iterator[str]:
    """Markdown: each product alone on the whole GPU, from the profile of random numbers."""
    with open_store(settings.database_url, settings.home) as store:
        points = [p for p in store.solo_points() if p.share_percent == WHOLE and p.power_w]
    usual = find_profiles((RANDOM,), settings)
    yield "| alone | W | expected | rate | expected | bounds |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for point in points:
        if point.job not in data or point.job == RANDOM:
            continue
        (change,) = other_data(usual, {RANDOM: data[point.job]}, model).changes
        watts, rate = usual.a.whole_gpu_power_w, point.rate / usual.a.whole_gpu_rate
        speed = change.whole_gpu_speed
        yield (
            f"| {point.job} | {point.power_w:.0f} | {watts + change.whole_gpu_w.value:.0f} | "
            f"{rate:.3f} | {speed.value:.3f} | {speed.low:.3f} {speed.high:.3f} |"
        )


def rows(
    settings: Settings, model: InputPredictor, data: Mapping[str, InputFingerprint]
) -> list[Row]:
    """Every pair of other data that was measured at a split at which random numbers were, too."""
    with open_store(settings.database_url, settings.home) as store:
        points = [p for p in store.pair_points() if p.power_w and "failed" not in p.flags]
    usual = {(partner_of(p), split_of(p)): p for p in points if RANDOM in p.jobs}
    found: list[Row] = []
    for point in points:
        product, partner, split = product_of(point), partner_of(point), split_of(point)
        if product == RANDOM or (partner, split) not in usual:
            continue
        profiles = find_profiles((RANDOM, partner), settings)
        other = other_data(profiles, {RANDOM: data[product]}, model)
        found.append(_row(point, usual[partner, split], profiles, other))
    return found


def _row(point: PairPoint, usual: PairPoint, profiles: ProfileSet, other: OtherData) -> Row:
    assert point.power_w
    assert usual.power_w
    own = {profile.job: profile for profile in profiles.profiles}
    measured = MeasuredPair(usual, tuple(own[job] for job in usual.jobs))
    there, changed = other.applied(measured, measured.profiles)
    (moved,) = there.predict(changed, [measured.split])
    product, partner, split = product_of(point), partner_of(point), split_of(point)
    shares = Split(tuple(map(float, split.split("/"))))
    predictor = Registry(read_settings().home / "models").open_champion()
    (before,) = predictor.predict(profiles.profiles, [shares])
    there, changed = other.applied(predictor, profiles.profiles)
    (after,) = there.predict(changed, [shares])
    return Row(
        pair=(product, partner),
        split=split,
        measured_w=point.power_w,
        held_back=_held_back(point, usual),
        profile=(usual.power_w / point.power_w - 1, moved.power_w.value / point.power_w - 1),
        model=(
            before.power_w.value / point.power_w - 1,
            after.power_w.value / point.power_w - 1,
        ),
    )


def _held_back(*points: PairPoint) -> str:
    throttled = [p for p in points if "throttled" in p.flags]
    if not throttled:
        return HELD_BACK[0]
    return HELD_BACK[1] if all(map(at_limit, throttled)) else HELD_BACK[2]


def table(found: Sequence[Row]) -> Iterator[str]:
    """Markdown, with means of the errors' sizes."""
    yield "| pair | split | W | profile, % | corrected, % | model, % | with data, % |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for held_back in HELD_BACK:
        rows = sorted(
            (r for r in found if r.held_back == held_back), key=lambda r: (r.pair, r.split)
        )
        for row in rows:
            errors = " | ".join(f"{100 * e:+.1f}" for e in (*row.profile, *row.model))
            yield f"| {' + '.join(row.pair)} | {row.split} | {row.measured_w:.0f} | {errors} |"
        yield from _means(held_back, rows)


def _means(name: str, rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        sizes = [
            statistics.fmean(abs((*row.profile, *row.model)[place]) for row in rows)
            for place in range(4)
        ]
        means = " | ".join(f"{100 * size:.1f}" for size in sizes)
        count = len({row.pair for row in rows})
        yield f"| mean size, {name}, {count} pairs, {len(rows)} splits | | | {means} |"


if __name__ == "__main__":
    main()
