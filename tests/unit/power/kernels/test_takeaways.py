"""Claims of FinGraV: what confirms one, what refutes one, and what leaves it open."""

import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_kernel import MadeUpKernel, record

from advisor.core.gpu import Gpu
from advisor.formats.wire import to_plain
from advisor.wire.kernel_power import KernelReport
from advisor_power.kernels.claims.takeaways import (
    Rise,
    Shift,
    equal_times_differ_in_power,
    light_inherit_heavy_do_not,
    rise_of,
    shift_of,
)
from advisor_power.kernels.running.operation import measure_operation
from advisor_power.kernels.running.wanted import Sensors, Wanted

SAME, LESS, MORE = Shift(0.01, 0.002, 0.4), Shift(-0.04, 0.005, -0.3), Shift(0.04, 0.005, 0.3)


def first(*rises: Rise) -> str:
    """The verdict on kernels that rise so."""
    return equal_times_differ_in_power({str(n): rise for n, rise in enumerate(rises)}).verdict


def test_three_kernels_that_rise_confirm_the_first() -> None:
    """At equal times; where times differ, power may, too."""
    rises, flat, slower = Rise(0.06, 0.01), Rise(0.01, 0.0), Rise(0.3, 0.1)
    assert first(*[rises] * 3, *[flat] * 3) == "confirmed"
    assert first(*[Rise(-0.06, 0.0)] * 3) == "confirmed"
    assert first(*[flat] * 6) == "refuted"
    assert first(*[flat] * 5) == first() == "open"
    assert first(*[rises] * 2, *[flat] * 4) == "open"
    assert first(*[slower] * 6) == "open"


def test_light_that_differ_beside_heavy_that_do_not_confirm_the_fourth() -> None:
    """The difference must be large and certain; what is small everywhere refutes."""

    def verdict(light: dict[str, Shift], heavy: dict[str, Shift]) -> str:
        return light_inherit_heavy_do_not(light, heavy).verdict

    assert verdict({"a": MORE, "b": LESS}, {"c": SAME}) == "confirmed"
    assert verdict({"a": SAME}, {"c": SAME}) == "refuted"
    assert verdict({"a": MORE, "b": SAME}, {"c": SAME}) == "open"
    assert verdict({"a": MORE}, {"c": MORE}) == "open"
    assert verdict({"a": replace(MORE, error=0.02)}, {"c": SAME}) == "open"
    assert verdict({}, {"c": SAME}) == verdict({"a": MORE}, {}) == "open"


def report(home: Path, before_w: float | None = None) -> KernelReport:
    """A flat operation of 250 W, after idle or another power."""
    found = record()
    lead = {} if before_w is None else {"before": "other", "lead_s": 0.1}
    return measure_operation(
        MadeUpKernel(lambda _: 250.0, lead_w=before_w or 0.0),
        Gpu(uuid="GPU-1", model="Fake H200", driver="580.00.00", units_total=132),
        Sensors(found, found.channels[0]),
        Wanted(runs=80, **lead),  # pyright: ignore[reportArgumentType]
        home,
        lambda _: None,
        lambda _: None,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> KernelReport:
    return report(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> KernelReport:
    return report(tmp_path_factory.mktemp("after"), 500.0)


def test_shift_of_the_window_is_none_of_the_operation(after: KernelReport) -> None:
    """As read, 250 W after 500 W are far too much; corrected they are what they are."""
    shift = shift_of(after, 250.0)
    assert shift is not None
    assert abs(shift.corrected) <= 0.015
    assert shift.raw is not None
    assert shift.raw > 0.2
    assert shift_of(replace(after, settled_power_w=None), 250.0) is None


def test_flat_power_does_not_rise(alone: KernelReport) -> None:
    """From SSE to SSP; without one of them nothing is said."""
    rise = rise_of(alone)
    assert rise is not None
    assert abs(rise.power) < 0.05
    assert abs(rise.time) < 0.01
    assert rise_of(replace(alone, ssp_power_w=None)) is None


def test_campaign_ends_in_a_table(alone: KernelReport, after: KernelReport, tmp_path: Path) -> None:
    """Of six flat kernels that are all the same; what was not measured is open."""
    cells, table = script("fingrav_cells"), script("fingrav_table")
    names = [cell.name for cell in cells.cells()]
    assert len(names) == len(set(names)) == 2 * (8 + 6 + 5 + 3) + 8 + 4
    for cell in cells.cells():
        if cell.units == 66 and cell.kind == "order":
            pair = {"light_first_j": 99.0 + cell.number / 10, "heavy_first_j": 101.0}
            (tmp_path / f"{cell.name}.json").write_text(json.dumps(pair))
        elif cell.units == 66:
            found = after if cell.kind == "after" else alone
            json_of = {**to_plain(found), "launch_flop": 1e9, "launch_bytes": 1e6}
            (tmp_path / f"{cell.name}.json").write_text(json.dumps(json_of))
    lines = list(table.table(tmp_path, None))
    assert lines[0] == "| takeaway | paper | ours | verdict |"
    verdicts = dict(re.findall(r"^\| (F\d[^|]*) \|.*\| (\w+) \|$", "\n".join(lines), re.MULTILINE))
    flat = dict.fromkeys(("F1", "F2", "F4", "F6"), "refuted") | {"F3": "open", "F5": "confirmed"}
    assert verdicts == {
        **{f"{claim}, 66 SMs": verdict for claim, verdict in flat.items()},
        **{f"{claim}, 132 SMs": "open" for claim in flat},
        **{"F7": "open", "F8": "open"},
    }
    assert "- F3, 66 SMs: the light product is not light here" in "\n".join(lines)


def script(name: str) -> Any:
    """A part of the campaign."""
    folder = str(Path(__file__).parents[4] / "docs/measurements/power")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)
