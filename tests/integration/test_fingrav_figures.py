"""The verdicts that are published on FinGraV's takeaways, from the cells that are committed."""

import importlib
import re
import sys
from pathlib import Path

import pytest

POWER = Path(__file__).parents[2] / "docs/measurements/power"

NOT_OPEN = {
    "h100": {"F6, 66 SMs": "refuted"},
    "h100-2": {"F7": "confirmed"},
    "h200": {"F2, 66 SMs": "confirmed", "F6, 66 SMs": "refuted"},
    "h200-2": {
        "F2, 132 SMs": "confirmed",
        "F5, 66 SMs": "refuted",
        "F6, 66 SMs": "refuted",
    },
    "h200-3": {"F6, 132 SMs": "refuted"},
    "h200-4": {"F6, 66 SMs": "refuted"},
}
"""By folder of cells; all others are open (docs/kernel-power.md)."""


@pytest.mark.figures
@pytest.mark.parametrize("folder", NOT_OPEN)
def test_verdicts_are_those_that_are_published(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(POWER), *sys.path])
    rows = "\n".join(
        importlib.import_module("fingrav_table").table(POWER / "fingrav" / folder, None)
    )
    found = dict(re.findall(r"^\| (F\d[^|]*) \|.*\| (\w+) \|$", rows, re.MULTILINE))
    assert len(found) == 14
    assert {claim: verdict for claim, verdict in found.items() if verdict != "open"} == NOT_OPEN[
        folder
    ]
