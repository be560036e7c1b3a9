"""Prediction of ten splits and a cold `advisor recommend`, beside another checkout, in turns.

    .venv/bin/python docs/measurements/speed_beside.py CHECKOUT [--rounds 15]

CHECKOUT has a `.venv` of its own (`make run` there). Prints the smallest and the median of all
rounds: what is measured in turns meets the same other work on the host. A warm prediction is of
the nine splits and uncapped, of another pair of bundled jobs each time; a cold command is a new
process.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]

WARM = """
import itertools, json, sys, time
from pathlib import Path
from advisor.core.split import NINE, UNCAPPED
from advisor.predict.profiles import make_profiles
from advisor_data.files.bundled import bundled_solo_points
from advisor_models.registry import Registry

jobs = [p for p in make_profiles(bundled_solo_points()).values() if p.shares[0] <= 10]
pairs = itertools.cycle([(a, b) for a in jobs for b in jobs if a.gpu_model == b.gpu_model])
begun = time.perf_counter()
predictor = Registry(Path(sys.argv[1])).open_champion()
opened, found = time.perf_counter() - begun, []
for _ in range(300):
    begun = time.perf_counter()
    predictor.predict(next(pairs), (*NINE, UNCAPPED))
    found.append(time.perf_counter() - begun)
print(json.dumps({"open the model": [opened], "predict ten splits": found}))
"""
"""Runs in checkouts of before and after models were plain trees."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    checkouts = {"before": given.checkout.resolve(), "now": HERE}
    times: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(given.rounds):
            for which, checkout in checkouts.items():
                for what, found in measured(checkout, f"{home}/{which}").items():
                    times.setdefault(what, {}).setdefault(which, []).extend(found)
    print("| ms | before, smallest | median | now, smallest | median |")
    print("| --- | --: | --: | --: | --: |")
    for what, of in times.items():
        cells = (f"{1e3 * x:.2f}" for f in of.values() for x in (min(f), statistics.median(f)))
        print(f"| {what} | {' | '.join(cells)} |")


def measured(checkout: Path, home: str) -> dict[str, list[float]]:
    """Seconds of everything, once."""
    python = str(checkout / ".venv/bin/python")
    env = {**os.environ, "ADVISOR_HOME": home}
    warm = subprocess.run(
        [python, "-c", WARM, home], cwd=checkout, env=env, check=True, stdout=subprocess.PIPE
    )
    command = [str(checkout / ".venv/bin/advisor"), "recommend", "bert-infer-b2", "vit-train"]
    begun = time.perf_counter()
    subprocess.run(command, cwd=checkout, env=env, check=True, stdout=subprocess.DEVNULL)
    return {**json.loads(warm.stdout), "cold advisor recommend": [time.perf_counter() - begun]}


if __name__ == "__main__":
    main()
