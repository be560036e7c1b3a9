"""What hidden units in another order save: two layers of the network of real_tensors.py, in bf16.

    .venv/bin/python docs/measurements/power/reorder.py FOLDER --python python3

FOLDER is that of real_tensors.py. Products of activations with the weight out of hidden units are
measured in the old and in the new order in turns, about a minute for each. What is done is in
FOLDER/reorder.jsonl, so that the same command goes on; the table is printed at the end.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from inputs import BELOW, WHOLE
from rich.console import Console

from advisor.settings import read_settings
from advisor_cli.shared.stopping import stoppable
from advisor_power.inputs.opening import Open, Where, open_inputs
from advisor_power.kernels.estimates import STANDARD_ERRORS_95
from advisor_power.reorder.orders import find_order
from advisor_power.reorder.saving import Measurable, measure_saving

LAYERS = tuple((name, when) for when in ("after", "before") for name in ("gelu", "relu"))


def main() -> None:
    """The command line."""
    options = _parser().parse_args()
    console = Console(stderr=True, markup=False, highlight=False)
    folder = options.folder.absolute()
    kept = folder / "reorder.jsonl"
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {(row["layer"], row["units"]) for row in done}
    missing = [one for one in LAYERS if (" ".join(one), options.units) not in known]
    if missing:
        units = None if options.units == WHOLE else options.units
        where = Where(gpu=options.gpu, python=options.python, units=units)
        with stoppable(console), open_inputs(read_settings(), where) as run:
            for name, when in missing:
                row = measured(run, folder, name, when, console) | {"units": options.units}
                with kept.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                done.append(row)
    print("| layer | SMs | bits that switch | in the new order | saved | +- | of | verdict |")
    print("|---|---|---|---|---|---|---|---|")
    for row in done:
        bits = f"{row['before']:.2%} | {row['after']:.2%}"
        saved = f"{row['value']:+.2%} | {STANDARD_ERRORS_95 * row['error']:.2%} | {row['quantity']}"
        print(f"| {row['layer']} | {row['units']} | {bits} | {saved} | {row['verdict']} |")


def measured(run: Open, folder: Path, name: str, when: str, console: Console) -> dict[str, Any]:
    """One layer."""
    down = np.load(folder / f"weight-{name}-{when}.npy").astype(ml_dtypes.bfloat16)
    activations = np.load(folder / f"{name}-{when}.npy")
    found = find_order(down)
    product = Measurable(f"{name} {when}", activations, down, "bf16")
    saving = measure_saving(
        run,
        product,
        found.order,
        lambda step: console.print(f"  {product.layer}: {step.done}/{step.total}"),
    )
    return {
        "layer": product.layer,
        "before": found.before,
        "after": found.after,
        "value": saving.value,
        "error": saving.error,
        "quantity": saving.quantity,
        "verdict": saving.verdict,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="python3", help="interpreter that has PyTorch")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--units", type=int, default=BELOW, help=f"SMs; {WHOLE}: the whole GPU")
    return parser


if __name__ == "__main__":
    main()
