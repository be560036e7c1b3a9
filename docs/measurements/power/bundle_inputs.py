"""Makes the models of power by data that come with advisor, and their points, of published results.

    .venv/bin/python docs/measurements/power/bundle_inputs.py

The same results give the same files; a version has the day of the newest result.
"""

from collections.abc import Iterator
from pathlib import Path

from advisor.wire.power import InputPoint
from advisor_data.bundled import input_points_text
from advisor_power.data.measuring import read_kept
from advisor_power.data.predictor import BUNDLED
from advisor_power.data.training import fit_inputs, points_of, write_input_model

ROOT = Path(__file__).resolve().parents[3]
INPUTS = Path(__file__).with_name("inputs")
POINTS = ROOT / "data/advisor_data/bundled/inputs.jsonl"
OF = {
    "NVIDIA H100 80GB HBM3": "h100 34 34-types 34-network 34-fp32 66 132 132-fp16",
    "NVIDIA H200": "h200 34 34-types 34-fp32 132 132-fp8",
}
"""Results that each model learns from: how names of files begin, and end. On the H200 of
h200-66-network.jsonl the power limit held back what little was not of a file."""


def main() -> None:
    """Write both models, then the points of both."""
    every: list[InputPoint] = []
    for gpu_model, names in OF.items():
        begin, *ends = names.split()
        results = [one for end in ends for one in read_kept(INPUTS / f"{begin}-{end}.jsonl")]
        points, _ = points_of(results)
        trained = fit_inputs(points, gpu_model=gpu_model)
        manifest = write_input_model(BUNDLED / gpu_model.lower().replace(" ", "-"), trained)
        every += trained.points
        print(f"{gpu_model}: {len(trained.points)} points, version {manifest.version}")
    POINTS.write_bytes(input_points_text(every))
    print(*table(every), sep="\n")


def table(points: list[InputPoint]) -> Iterator[str]:
    """What there is, in Markdown, as the data card has it."""
    yield "| GPU model | card | type | SMs | points | patterns | clock held back | power, W |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for kind in sorted({(p.gpu_model, p.gpu_uuid, p.dtype, p.units) for p in points}):
        of = [p for p in points if (p.gpu_model, p.gpu_uuid, p.dtype, p.units) == kind]
        gpu_model, gpu_uuid, dtype, units = kind
        watts = [p.power_w for p in of]
        counts = len(of), len({p.group for p in of}), sum(p.held_back for p in of)
        cells = (gpu_model, gpu_uuid[:12], dtype, units, *counts)
        yield f"| {' | '.join(map(str, cells))} | {min(watts):.0f} to {max(watts):.0f} |"


if __name__ == "__main__":
    main()
