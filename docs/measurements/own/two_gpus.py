"""A training on two GPUs beside other jobs on each: what is said of it, then what is measured.

    export PYTHONPATH=.:models:data:api          # two idle GPUs of one host; 4 minutes
    python3 docs/measurements/own/two_gpus.py rows.jsonl

Needs MPS, PyTorch with NCCL, which takes its variables from the environment, and pynvml. Said is
what the law of sets makes of the training alone, measured first, and of bundled profiles of its
neighbours at their rates on this host. Whatever was started ends with it, in 290 s at most.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pynvml
from priority import bundled_profiles
from windows import (
    HERE,
    START_S,
    WORKLOADS,
    Process,
    are_ready,
    end,
    job_commands,
    per_s,
    percent_between,
)

from advisor.core.gpu import ALL_GPUS, Split
from advisor.predict.kernels import MeanEstimate, kernels_beside
from advisor.predict.profiles import COLUMNS, Kernels, Profile
from advisor.predict.sets import SetPredictor

SHARES, SETTLE_S, WINDOW_S, MOST_S = (25, 50, 100), 1.5, 6.5, 290
RANKS, PROBE = HERE / "two_ranks.py", ["short_kernels.py", "--ms", "0.1", "--block-us", "20"]
COUNTERS = {"sm_active_percent": "sm", "sm_occupancy_percent": "occupancy"}
COUNTERS |= {"tensor_active_percent": "tensor", "dram_active_percent": "dram"}


def window(jobs, seconds=WINDOW_S):
    """Rates of jobs, and watts and counters of both GPUs, while these jobs run."""
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in (0, 1)]
    samples = [(pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()) for _ in gpus]
    ends = iter(zip(*samples, strict=True))

    def look():
        for gpu, sample in zip(gpus, next(ends), strict=True):
            pynvml.nvmlGpmSampleGet(gpu, sample)
        return [pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000 for gpu in gpus]

    first_w, second_w, *rates = per_s(jobs, seconds, SETTLE_S, look)
    return {
        "jobs": [job.name for job in jobs],
        "power_w": [first_w, second_w],
        "rates_per_s": rates,
        "percent": [percent_between(both) for both in samples],
    }


def profile_of(alone, probed, idle_w):
    """The training's profile: means of both GPUs at each share, kernels beside a probe on one."""
    values = {name: np.full(len(SHARES), np.nan) for name in COLUMNS}
    for name, own in COUNTERS.items():
        values[name] = np.mean([[gpu[own] for gpu in row["percent"]] for row in alone], axis=1)
    values["rate"] = np.maximum.accumulate([row["rates_per_s"][0] for row in alone])
    values["power_w"] = np.mean([row["power_w"] for row in alone], axis=1)
    busy = np.mean([gpu["busy"] for gpu in alone[-1]["percent"]])
    told = kernels_beside(*(MeanEstimate(rate, rate / 100) for rate in probed), busy_percent=busy)
    each, hold_s = told["kernels_per_unit"], told["kernel_hold_s"]
    kernels = Kernels(per_unit=each, hold_s=hold_s, source="probe")
    return Profile(
        job="ranks", gpu_model="NVIDIA H200", rate_unit="steps", units_total=132, values=values,
        shares=np.array(SHARES, dtype=float), idle_power_w=idle_w, power_limit_w=700.0, gpus=2,
        kernels=kernels, flags=("cpu-bound",) * int(busy < 90),
    )  # fmt: skip


def measure(names, batch, folder, write):
    """Measure all windows; write the predictions before the windows of sets."""
    processes, bundled = {}, bundled_profiles()

    def start(name, gpus, command, workdir=WORKLOADS):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
        processes[name] = Process(name, command, folder, workdir)

    try:
        idle_w = np.mean(window([], 1)["power_w"])
        for share in SHARES:
            start(f"ranks@{share}", "0,1", [sys.executable, str(RANKS), "--batch", str(batch)])
        start("probe", "0", [sys.executable, *PROBE])
        for name, gpu in ((name, gpu) for name in names for gpu in "01"):
            start(f"{name}#{gpu}", gpu, *job_commands()[name])
        if not are_ready(processes.values(), START_S):
            lacking = [p for p in processes.values() if not p.waits()]
            raise SystemExit(
                f"did not start: {[(p.name, p.log.read_text()[-999:]) for p in lacking]}"
            )

        def run(*jobs):
            return write(window([processes[job] for job in jobs]))

        alone = [run(f"ranks@{share}") for share in SHARES]
        probe, both = run("probe"), run("ranks@100", "probe")
        probed = alone[-1]["rates_per_s"] + both["rates_per_s"][:1]
        probed += probe["rates_per_s"] + both["rates_per_s"][1:]
        profiles = {"ranks": profile_of(alone, probed, idle_w)}
        solo = {"ranks": (alone[-1]["rates_per_s"][0], sum(alone[-1]["power_w"]))}
        for name in names:
            row, own = run(f"{name}#0", f"{name}#1"), bundled[name]
            for gpu in (0, 1):
                solo[f"{name}#{gpu}"] = row["rates_per_s"][gpu], row["power_w"][gpu]
            host = 1 if own.serving else np.mean(row["rates_per_s"]) / own.whole_gpu_rate
            profiles[name] = replace(own, values=own.values | {"rate": host * own.values["rate"]})
        one, other = names
        beside = [(f"{one}#0", f"{one}#1"), (f"{one}#0",), (f"{other}#0", f"{other}#1")]
        beside += [(f"{other}#0",), (f"{one}#0", f"{other}#1")]
        sets = [("ranks@100", *b) for b in beside] + [("ranks@50", *beside[n]) for n in (0, 2)]
        said = []
        for first, *others in sets:
            share, on = float(first[6:]), tuple(int(other[-1]) for other in others)
            shares = (share, *[100.0] * len(others))
            split = Split(shares, "uncapped" if share == 100 else "limited", (), (ALL_GPUS, *on))
            of = [profiles[name.partition("#")[0]] for name in ("ranks", *others)]
            p = SetPredictor().predict(of, [split])[0]
            ends = [(i.value, i.low, i.high) for i in [*(s.speed for s in p.parts), p.power_w]]
            said.append((*ends, (p.energy_saved.value, p.energy_saved.low, p.energy_saved.high)))
            write({"said": [first, *others], "ends": said[-1], "kernels": str(of[0].kernels)})
        for together, ends in zip(sets, said, strict=True):
            row, names_of = run(*together), ("ranks", *together[1:])
            alone_of, watts = [solo[name] for name in names_of], sum(row["power_w"])
            own = [rate / of[0] for rate, of in zip(row["rates_per_s"], alone_of, strict=True)]
            saved = 1 - watts / sum(v * of[1] for v, of in zip(own, alone_of, strict=True))
            print("|", " + ".join(together), end="")
            for (value, low, high), seen in zip(ends, [*own, watts, saved], strict=True):
                print(f" | {value:.3g} ({low:.3g} to {high:.3g}): {seen:.3g}", end="")
            print(" |", flush=True)
        again = run("ranks@100")["rates_per_s"][0] / solo["ranks"][0]
        print(f"ranks alone again: {again:.3f} of the first window's rate")
    finally:
        end(processes.values())


def main():
    """Start MPS for both GPUs, measure, and end it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--neighbours", nargs=2, default=["albert-train-b2", "bert-infer"])
    parser.add_argument("--batch", type=int, default=16, help="of each rank")
    given = parser.parse_args()

    def stop(*_):
        raise SystemExit("time is up, or stopped")

    def write(row):
        with given.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return row

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, stop)
    signal.alarm(MOST_S)
    pynvml.nvmlInit()
    with tempfile.TemporaryDirectory(prefix="mps", dir="/tmp") as folder:
        os.environ |= {f"CUDA_MPS_{kind}_DIRECTORY": folder for kind in ("PIPE", "LOG")}
        os.environ |= {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
        try:
            measure(given.neighbours, given.batch, Path(folder), write)
        finally:
            signal.alarm(0)
            subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 5\n", text=True, timeout=20)


if __name__ == "__main__":
    main()
