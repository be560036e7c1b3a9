"""The campaign on input-dependent power, with a fake driver and small matrices."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from host import FAKES, UUID, FakeHost
from made_up_inputs import CONDITIONS, case, result
from made_up_kernel import FAST, record

from advisor.validity.sensor_record import keep_record
from advisor_power.inputs.keeping import input_lines
from advisor_power.inputs.reference import reference_for

SCRIPT = Path(__file__).parents[2] / "docs/measurements/power/inputs.py"
SMALLER = """
import functools, runpy, sys
from advisor_power.inputs import claims, live
claims.SQUARE, claims.MEMORY_SHAPE = (32, 16, 64), (64, 1, 64)
live.open_inputs = functools.partial(live.open_inputs, window_s=0.5)
sys.path.insert(0, sys.argv[1])
import inputs
every, count = inputs.rounds, int(sys.argv.pop(2))
inputs.rounds = lambda *asked: [inputs.Round(66, next(iter(every(*asked))).cases[:count])]
sys.argv[:2] = ["inputs.py"]
inputs.main()
"""


def campaign(host: FakeHost, count: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SMALLER, str(SCRIPT.parent), str(count), *words],
        env=host.environment(),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def kept(host: FakeHost) -> list[dict[str, Any]]:
    file = host.folder / "home/inputs" / f"{UUID.lower()}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_campaign_keeps_what_it_measures_and_goes_on(host: FakeHost) -> None:
    """It prints the table of what there is; the next one measures the rest of the round."""
    keep_record(record(FAST, gpu_uuid=UUID), host.folder / "home")
    words = ("--python", str(FAKES / "fake_input_worker.py"), "--minutes", "9")
    done = campaign(host, 2, *words)
    assert done.returncode == 0, done.stderr
    assert "Fake H200, 66 SMs, bf16" in done.stdout
    before = kept(host)
    assert [line["is_reference"] for line in before] == [True, False, False, True]
    assert campaign(host, 3, *words).returncode == 0
    after = kept(host)
    assert after[:4] == before
    assert [line["is_reference"] for line in after[4:]] == [True, False, True]
    cases = [json.dumps(line["case"]) for line in after if not line["is_reference"]]
    assert len(set(cases)) == len(cases)


@pytest.mark.parametrize(("unwritten", "said"), [(5, "confirmed"), (0, "refuted")])
def test_table_comes_without_a_gpu(host: FakeHost, unwritten: int, said: str) -> None:
    keep = input_lines(host.folder / "home", "GPU-1")
    usual = reference_for((32, 16, 64), "bf16", "product")
    keep.add(result(usual, at_s=0, is_reference=True))
    keep.add(result(case("normal(0,1024)|sparse(1)"), 280, at_s=1))
    keep.add(result(usual, at_s=2, is_reference=True))
    wrong = dataclasses.replace(
        result(usual, 300, at_s=3, session="two"),
        conditions=dataclasses.replace(CONDITIONS, units=92),
    )
    outputs = dataclasses.replace(wrong.outputs, unwritten=unwritten)
    keep.add(dataclasses.replace(wrong, outputs=outputs))
    done = campaign(host, 0, "--minutes", "0", "--gpu", "GPU-1")
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| T12 |")]
    assert "| -30.0% | 0.1% | ratio | 1980-1980 | 2 | confirmed |" in row
    assert "T9 falls more than T8: open; " in done.stdout
    assert "T7, 16-bit products draw the most, 66 SMs: open (bf16 400 W)" in done.stdout
    assert f"N6, wrong at 92 SMs and right elsewhere: {said}" in done.stdout
