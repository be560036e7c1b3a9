"""The line that docs/measurements/own/round_robin.py prints for a public table."""

import runpy
import sys
from pathlib import Path

import pytest

OWN = Path(__file__).parents[4] / "docs/measurements/own"


def test_line_has_rates_ratios_and_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(OWN), *sys.path])
    line = runpy.run_path(str(OWN / "round_robin.py"))["line"]
    # Where MPS did not run, its cells are empty, and rates alone are those of the other way.
    assert [
        line("GPU", "580.1", mps, (9e3, 1e3, 4800.0, 1200.0))
        for mps in ((9600.0, 2400.0, 1900.0, 1950.0), None)
    ] == [
        "| GPU | 580.1 | 9,600, 2,400 | 1,920 | 1,900, 1,950 | 0.97 | 4,800, 1,200 | 4.00 |",
        "| GPU | 580.1 | 9,000, 1,000 | 900 |  |  | 4,800, 1,200 | 4.00 |",
    ]
