"""How many seconds of a GPU the commands of power took, from what they left behind.

    .venv/bin/python docs/measurements/power/gpu_seconds.py

Of sensors the seconds that the record says; of profiles and inputs from the start of the command,
which its run or session is named after, to the end of its last window: PyTorch's start counts.
Inputs are the results beside this script, in `inputs/`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from advisor.core.records import SoloPoint
from advisor_data.files.files import read_points
from advisor_data.files.power_records import bundled_sensors
from advisor_power.inputs.keeping import read_kept

HERE = Path(__file__).parent
PROFILES = HERE / "components-h200.jsonl"


def main() -> None:
    """Print the table."""
    print("| command | GPU model | what | seconds |\n| --- | --- | --- | --- |")
    for record in bundled_sensors():
        print(f"| advisor power sensor | {record.gpu_model} | a record | {record.seconds:.0f} |")
    for line in (*profiles(), *kernels(), *inputs(sorted((HERE / "inputs").glob("*.jsonl")))):
        print(line)


def profiles() -> Iterator[str]:
    """Each run of a microbenchmark."""
    points = [p for p in read_points(PROFILES) if isinstance(p, SoloPoint)]
    for run, group in groupby(sorted(points, key=lambda p: p.run), key=lambda p: p.run):
        own = list(group)
        took_s = max(_end_s(p.started_at, p.window_s) for p in own) - _begin_s(run)
        what = f"{own[0].job}, {len(own)} shares"
        yield f"| advisor profile | {own[0].gpu_model} | {what} | {took_s:.0f} |"


def kernels() -> Iterator[str]:
    """Each kernel of FinGraV's campaign that was measured in runs."""
    for file in sorted((HERE / "fingrav").glob("*/*-runs.json")):
        found = json.loads(file.read_text())
        what = f"{found['operation']}, {found['units']} SMs, {found['runs']} runs"
        yield f"| advisor power kernel | {found['gpu_model']} | {what} | {found['seconds']:.0f} |"


def inputs(files: Iterable[Path]) -> Iterator[str]:
    """Each session."""
    results = [result for file in files for result in read_kept(file)]
    for session, group in groupby(sorted(results, key=lambda r: r.session), lambda r: r.session):
        own = list(group)
        took_s = max(_end_s(r.measured_at, r.window_s) for r in own) - _begin_s(session)
        what = f"{len(own)} windows, {sum(r.is_reference for r in own)} of them references"
        what += f": {took_s / len(own):.1f} s each"
        yield f"| advisor power input | {own[0].conditions.gpu_model} | {what} | {took_s:.0f} |"


def _begin_s(name: str) -> float:
    """The moment in the name of a run or session."""
    found = re.search(r"(\d{4})-?(\d\d)-?(\d\d)T(\d\d)(\d\d)(\d\d)", name)
    if found is None:
        raise SystemExit(f"{name} does not say when it began")
    return datetime(*map(int, found.groups()), tzinfo=UTC).timestamp()


def _end_s(started_at: str, window_s: float) -> float:
    return datetime.fromisoformat(started_at).timestamp() + window_s


if __name__ == "__main__":
    main()
