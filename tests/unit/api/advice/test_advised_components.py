"""What the power of an answer goes to: windows that are found, and answers without any."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advised import CARD, known, model, profiles, settings_of, solo_points
from pair_points import pair_point

from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import Split
from advisor.decide.recommendation import Request
from advisor.errors import InputError
from advisor.settings import Settings
from advisor_advice import components as module
from advisor_advice.answers import answer, to_wire
from advisor_advice.components import (
    components_of_job,
    components_of_pair,
    known_power_of,
    with_components,
)
from advisor_data import open_store

GIVEN = answer(
    known(model({Split((30.0, 70.0)): (0.6, 0.9, 350.0)})), Request(default_min_speed=0.0)
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A host with a store in which both jobs were measured."""
    found = replace(settings_of(tmp_path), database_url=f"sqlite:///{tmp_path / 'points.db'}")
    with open_store(found.database_url, found.home) as store:
        store.add([*solo_points("a"), *solo_points("b")])
        store.add([pair_point(gpu_model=CARD, job_1="a", job_2="b")])
    return found


def noting(notes: list[Any], answer: Any) -> Callable[..., Any]:
    """What keeps the arguments that it is called with."""

    def called(*given: Any) -> Any:
        notes.append(given)
        return answer

    return called


def test_an_answer_without_parts_says_why() -> None:
    def fails() -> Any:
        raise InputError("2 jobs are too few", fix="profile more")

    found = with_components(to_wire(GIVEN), GIVEN.recommendation, fails)
    assert found == replace(to_wire(GIVEN), components_unknown="2 jobs are too few. profile more.")


def test_weights_are_fitted_to_all_windows_of_the_gpu_model(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored, bundled, and those that are given."""
    fitted: list[tuple[Sequence[SoloPoint], str]] = []
    monkeypatch.setattr(module, "fitted_weights", noting(fitted, "weights"))
    known: list[Any] = []
    monkeypatch.setattr(module, "known_power", noting(known, "power"))
    more = solo_points("c")[0]
    assert known_power_of(profiles(), settings, [more]) == "power"
    ((points, gpu_model),) = fitted
    jobs = {p.job for p in points}
    assert gpu_model == CARD
    assert {"a", "b", "c", "fft"} <= jobs
    assert known == [(profiles_of(known), points, "weights")]


def profiles_of(known: list[Any]) -> Any:
    """The first argument, which are the profiles of both."""
    assert [p.job for p in known[0][0]] == ["a", "b"]
    return known[0][0]


def test_a_job_is_told_by_its_own_profile(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(module, "known_power_of", noting(shown, "power"))
    monkeypatch.setattr(module, "components_by_share", noting(shown, "parts"))
    assert components_of_job("a", settings) == "parts"
    (found, _), power = shown
    assert ([p.job for p in found.profiles], power) == (["a"], ("power",))
    with pytest.raises(InputError, match="no profile on Other: a"):
        components_of_job("a", settings, "Other")


def test_a_pair_is_told_with_its_windows_together(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From the store, of its GPU model; without a store there are the bundled ones."""

    class Power:
        """Of both."""

        pair_names: tuple[str, ...] = ("a", "b")
        gpu_model = CARD

    shown: list[Any] = []
    monkeypatch.setattr(module, "known_power_of", noting([], Power()))
    monkeypatch.setattr(module, "answer", noting([], GIVEN))
    monkeypatch.setattr(module, "components_by_split", noting(shown, "parts"))
    assert components_of_pair("a", "b", settings) == "parts"
    power, recommendation, points = shown.pop()
    assert isinstance(power, Power)
    assert recommendation is GIVEN.recommendation
    assert [p.jobs for p in points] == [("a", "b")]
    Power.pair_names = ("bert-infer-b2", "vit-train")
    components_of_pair("fft", "sorting", replace(settings_of(tmp_path), home=tmp_path / "none"))
    _, _, bundled = shown.pop()
    assert bundled
    assert {p.jobs for p in bundled} == {("bert-infer-b2", "vit-train")}
    assert all(isinstance(p, PairPoint) for p in bundled)
