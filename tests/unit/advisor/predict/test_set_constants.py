"""Constants of the law of sets are those that the bundled sets give.

A test fails where sets were added, or the law or the counting of jobs was changed, and nobody has
fitted again.
"""

import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.predict import profiles, sets

pytestmark = pytest.mark.figures
SCRIPTS = Path(__file__).parents[4] / "docs/measurements/sets"


@pytest.fixture
def defined(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], dict[str, Any]]]:
    """What a script defines, asked for all campaigns."""
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    monkeypatch.setattr(sys, "argv", ["law.py"])
    yield lambda name: runpy.run_path(str(SCRIPTS / name))
    for name in ("law", "rows"):
        sys.modules.pop(name, None)


def about(low: float, high: float) -> Any:
    """As numbers stand in the package: with two decimals or three digits."""
    return pytest.approx((low, high), abs=0.0051, rel=0.003)


@pytest.mark.slow
def test_law_of_speeds_and_watts_is_the_fitted_one(
    defined: Callable[[str], dict[str, Any]],
) -> None:
    law = defined("law.py")
    constants, judged, guessed = law["fitted"](
        [*law["measured_rows"](""), *law["measured_pairs"](), *law["asked_rows"]()]
    )
    assert constants == {name: getattr(sets, name, profiles.CORNER) for name in constants}
    errors = law["errors"]([*judged, *guessed])
    for name in ("SPEED_ERRORS", "POWER_ERRORS", "ENERGY_ERRORS"):
        for of_class, bounds in getattr(sets, name).items():
            low, _, high, _ = errors[name, of_class]
            assert bounds == about(low, high), (name, of_class)


@pytest.mark.slow
def test_law_of_priority_is_the_fitted_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the windows of docs/measurements/own/priority-h200.jsonl."""
    own, law = SCRIPTS.parent / "own", sets.BELOW_NORMAL
    monkeypatch.setattr(sys, "path", [str(own), *sys.path])
    monkeypatch.setattr(sets, "BELOW_NORMAL", law)
    runpy.run_path(str(own / "priority.py"))["print_law"](own / "priority-h200.jsonl")
    told = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert told["BELOW_NORMAL, LOW_P99"].startswith(f"{law} {sets.LOW_P99.value:.2f} ")
    speeds, of_p99 = sets.LOW_SPEEDS, (sets.LOW_P99.low, sets.LOW_P99.high)
    of_speeds = ("LOW_SPEEDS, filler", "LOW_SPEEDS, other", "LOW_SPEEDS, server")
    names = (*of_speeds, "LOW_POWER", "LOW_ENERGY", "LOW_P99")
    stands = (*speeds, sets.LOW_POWER, sets.LOW_ENERGY, of_p99)
    for name, bounds in zip(names, stands, strict=True):
        low, _, high, *_ = told[name].split()
        assert bounds == about(float(low), float(high)), name


@pytest.mark.slow
def test_law_of_tails_is_the_fitted_one(defined: Callable[[str], dict[str, Any]]) -> None:
    """In turns the value is the median itself."""
    tails = defined("tails.py")
    rows = tails["measured_rows"]("")
    counted, guessed = (tails["windows"](rows, is_counted=own) for own in (True, False))
    laws = [tails["fitted"](tails["under_mps"](own)) for own in (counted, guessed)]
    assert (laws[0][0], tails["turn_ms"](counted)) == (sets.TAILS, sets.TURN_MS)
    errors = tails["errors"]([*counted, *guessed], [*laws[0][1], *laws[1][1]])
    assert errors.keys() == sets.P99_ERRORS.keys()
    for of_class, (low, middle, high, _) in errors.items():
        stands = sets.P99_ERRORS[of_class]
        assert (stands.low, stands.high) == about(low, high), of_class
        assert stands.value == (
            pytest.approx(middle, abs=0.005) if of_class == "time-sliced" else 1
        )
