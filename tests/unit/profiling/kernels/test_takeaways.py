"""Claims of FinGraV: what confirms one, what refutes one, and what leaves it open."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_kernel import MadeUpKernel, record

from advisor.core.gpu import Gpu
from advisor.formats.wire import write
from advisor.wire.kernel_power import KernelPower, KernelReport
from advisor_profiling.kernels.running.operation import Sensors, Wanted, measure_operation
from advisor_profiling.kernels.takeaways import (
    Rise,
    Shift,
    equal_times_differ_in_power,
    light_inherit_heavy_do_not,
    rise_of,
    shift_of,
)

SCRIPT = Path(__file__).parents[4] / "docs/measurements/power/fingrav.py"
SAME, LESS, MORE = Shift(0.01, 0.002, 0.4), Shift(-0.04, 0.005, -0.3), Shift(0.04, 0.005, 0.3)


def test_three_kernels_that_rise_confirm_the_first() -> None:
    """At equal times; where times differ, power may, too."""
    rises, flat, slower = Rise(0.06, 0.01), Rise(0.01, 0.0), Rise(0.3, 0.1)
    assert equal_times_differ_in_power([rises] * 3 + [flat] * 3) == "confirmed"
    assert equal_times_differ_in_power([Rise(-0.06, 0.0)] * 3) == "confirmed"
    assert equal_times_differ_in_power([flat] * 6) == "refuted"
    assert equal_times_differ_in_power([flat] * 5) == "open"
    assert equal_times_differ_in_power([rises] * 2 + [flat] * 4) == "open"
    assert equal_times_differ_in_power([slower] * 6) == "open"


def test_light_that_differ_beside_heavy_that_do_not_confirm_the_fourth() -> None:
    """The difference must be large and certain; what is small everywhere refutes."""
    verdict = light_inherit_heavy_do_not
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
    shift = shift_of(after, 250.0, 37.0)
    assert shift is not None
    assert abs(shift.corrected) <= 0.015
    assert shift.raw is not None
    assert shift.raw > 0.2
    assert shift_of(replace(after, curve=()), 250.0, 37.0) is None


def test_flat_power_does_not_rise(alone: KernelReport) -> None:
    """From SSE to SSP; without one of them nothing is said."""
    rise = rise_of(alone)
    assert rise is not None
    assert abs(rise.power) < 0.05
    assert abs(rise.time) < 0.01
    assert rise_of(replace(alone, ssp_power_w=None)) is None


def test_script_prints_what_was_measured(
    alone: KernelReport, after: KernelReport, tmp_path: Path
) -> None:
    """From the JSON of the command; half a campaign has no verdict."""
    spec = importlib.util.spec_from_file_location("fingrav", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    names = [name for name, _ in script.cells()]
    assert len(names) == len(set(names)) == 2 * (6 + 5)
    for name in names:
        if name.startswith("66"):
            found = after if name.endswith("after") else alone
            (tmp_path / f"{name}.json").write_text(write(found))
    read: dict[str, tuple[Any, KernelPower]] = script.results(tmp_path)
    assert read["66-gemv-2048"][1] == alone
    lines = list(script.table(read))
    assert sum(line.startswith("| gem") for line in lines) == 6
    assert lines[-1].endswith("different power: open; light inherit, heavy do not: open")
    (verdict,) = [line for line in lines[:-1] if "equal times" in line]
    assert verdict.endswith("light inherit, heavy do not: refuted")
