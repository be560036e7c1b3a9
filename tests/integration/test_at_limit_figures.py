"""How products that heat holds back follow the energy of their work, as the figures have it."""

import importlib
import sys
from pathlib import Path

import pytest

POWER = Path(__file__).parents[2] / "docs/measurements/power"


@pytest.mark.figures
def test_products_that_heat_holds_back_follow_the_energy_of_their_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [str(POWER), *sys.path])
    importlib.import_module("held_back_products").main()
    assert "22 products: median 2.7" in capsys.readouterr().out
