"""How near the law of sets comes to tables that others measured and published.

    python docs/measurements/sets/public.py FOLDER

FOLDER holds clones, none of which is kept here: github.com/MunQ-Lee/ParvaGPU_SC24 at 5f3de1e (MIT),
icloud-ecnu/igniter at b1ff2ab and tally-project/tally-bench at aaa359a (no licence), and
S-Lab-System-Group/Lucid at 63685a3 (not for commerce). The law was fitted to none of them, and all
are of other GPUs. No table has kernels per unit of work, so the law guesses them. SM activity is
what a job does for each 1 that the GPU does at its best part, where rates on parts are known. Else
GPU busy is, the part of the time in which a kernel runs, and `GAPS` makes it SM activity. Gaps of a
server of Tally are between requests, which it answers one by one. Errors are percent of what was
measured.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from advisor.core.gpu import TIME_SLICED, UNCAPPED, WHOLE, Split, without_limits
from advisor.predict.kernels import Kernels
from advisor.predict.profiles import COLUMNS, Profile, Serving
from advisor.predict.sets import ROUND_ROBIN, SERVER_HOLD_S, SetPredictor

PARTS = 7  # into which MIG cuts an A100
LAW, GAPS = SetPredictor(), 1 / ROUND_ROBIN.gaps

View = tuple[str, float, float, float]
"""What is judged; as it was measured, as it is alone, and as the law says."""


def job(active: float, share: float = WHOLE) -> Profile:
    """A job that does 1 a second alone, at its limit or without."""
    shares = np.array(sorted({share, WHOLE}))
    values = dict.fromkeys(COLUMNS, np.full(len(shares), np.nan))
    values |= dict.fromkeys(("rate", "power_w"), np.ones(len(shares)))
    values["sm_active_percent"] = WHOLE * active * np.ones(len(shares))
    profile = partial(Profile, job="", gpu_model="", rate_unit="", idle_power_w=0.0)
    return profile(shares=shares, values=values)


def one_by_one(busy: float, p99_ms: float) -> Profile:
    """A server that answers one request at a time."""
    demand = Serving(offered_rate=1.0, rate_noise=None, latency_p99_ms=((WHOLE, p99_ms),))
    known = partial(Kernels, per_unit_stderr=0.0, hold_stderr_s=0.0, source="guessed")
    kernels = known(per_unit=busy / SERVER_HOLD_S, hold_s=SERVER_HOLD_S)
    return replace(job(busy), serving=demand, kernels=kernels)


def of_parvagpu(folder: Path) -> Iterator[View]:
    """Two to five copies of a model on the whole GPU; a copy's rate is the mean of all."""
    for path in sorted((folder / "ParvaGPU_SC24/prof_data").glob("*.csv")):
        rates: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
        for part, batch, copies, rate, _ in list(csv.reader(path.open()))[1:]:
            if float(rate):
                rates[batch][int(part), int(copies)] = float(rate)
        for own in rates.values():
            best = max(own[part, n] * PARTS / part for part, n in own if n == 1)
            for part, n in own:
                if part == PARTS and n > 1 and (whole := own.get((PARTS, 1))):
                    split = without_limits("uncapped", n)
                    (found,) = LAW.predict([job(whole / best)] * n, [split])
                    yield "ParvaGPU", own[part, n] / whole, 1.0, found.parts[0].speed.value


def of_igniter(folder: Path) -> Iterator[View]:
    """Each job of each pair; limits add up to the GPU, and 20 to 80 % are measured alone."""
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    for line in (folder / "igniter/i-Gniter/Profile/tools/gpulet.config").open():
        for model, readings in json.loads(line).items():
            known[model] |= readings
    for one, other, batch, beside, limit, *took_ms in known["interference"]["latency"]:
        pair, alone_ms, split = list[Profile](), list[float](), Split((float(limit), WHOLE - limit))
        for model, size, share in zip((one, other), (batch, beside), split.shares, strict=True):
            own_ms = {float(at): ms for at, ms in known[model]["latency"][str(size)].items()}
            best = max(1 / (at * ms) for at, ms in own_ms.items() if 20 <= at <= 80)
            alone_ms.append(own_ms[share])
            pair.append(job(1 / (WHOLE * own_ms[share] * best), share))
        for n, part in enumerate(LAW.predict(pair, [split])[0].parts):
            yield "iGniter", alone_ms[n] / took_ms[n], 1.0, part.speed.value


def of_lucid(folder: Path) -> Iterator[View]:
    """Each job of each pair, time-sliced."""
    keys = "model", "dataset", "batchsize", "amp"
    alone = csv.DictReader((folder / "Lucid/simulation/analyzer/single_data.csv").open())
    busy = {tuple(row[key] for key in keys): float(row["gpu_util"]) / 100 for row in alone}
    for row in csv.DictReader((folder / "Lucid/simulation/data/colocate_info.csv").open()):
        pair = [job(busy[tuple(row[f"{key}{n}"] for key in keys)] ** GAPS) for n in (1, 2)]
        for n, part in enumerate(LAW.predict(pair, [TIME_SLICED])[0].parts, 1):
            yield "Lucid", float(row[f"speed{n}"]), 1.0, part.speed.value


def of_tally(folder: Path) -> Iterator[View]:
    """A server, half of whose capacity is asked, beside a training: rates, and p99 in ms."""
    results, pairs = folder / "tally-bench/tally_results_demo", dict[tuple[str, str], Any]()
    alone = csv.DictReader((results / "single-job-perf.csv").open())
    busy = {row["exp_key"]: float(row["gpu_util"]) / 100 for row in alone}
    for row in csv.DictReader((results / "priority-aware-perf.csv").open()):
        pairs[row["high_priority_job"], row["best_effort_job"]] = row  # once a setting of Tally
    for (server, training), row in pairs.items():
        p99_ms = float(row["high_priority_orig_99th_latency"])
        pair = one_by_one(busy[server], p99_ms), job(busy[training] ** GAPS)
        for way, split in (("mps", UNCAPPED), ("time_slicing", TIME_SLICED)):
            parts = LAW.predict(pair, [split])[0].parts
            for name, part in zip(("high_priority", "best_effort"), parts, strict=True):
                kept = float(row[f"{name}_{way}_throughput"])
                yield f"Tally, {way}, {name}", kept, 1.0, part.speed.value
            if tail := parts[0].latency_p99_ms:
                measured_ms = float(row[f"high_priority_{way}_99th_latency"])
                yield f"Tally, {way}, p99", measured_ms, p99_ms, tail.value


def main() -> None:
    """Print the errors of each table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    found = defaultdict[str, list[tuple[float, ...]]](list)
    for table in (of_parvagpu, of_igniter, of_lucid, of_tally):
        for name, *values in table(folder):
            found[name].append(tuple(values))
    print("| table | n | as alone | law | bias | within x1.5 |\n|---|--:|--:|--:|--:|--:|")
    for name, rows in found.items():
        measured, alone, law = np.array(rows).T
        offs = 100 * (alone / measured - 1), 100 * (law / measured - 1)
        within = 100 * float((np.abs(np.log(law / measured)) <= np.log(1.5)).mean())
        errors = " | ".join(f"{np.abs(off).mean():.1f}" for off in offs)
        print(f"| {name} | {len(rows)} | {errors} | {offs[1].mean():+.1f} | {within:.0f} % |")


if __name__ == "__main__":
    main()
