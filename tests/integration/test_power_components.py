"""`advisor power components`: where the power of a job, or of two, goes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, answered, refusal
from in_process import Api, error_of, running

import advisor_api
from advisor.core.records import SoloPoint
from advisor.formats.rows import to_row
from advisor.formats.wire import read
from advisor.wire.answers import NOT_IDENTIFIED, ComponentsOfJob, ComponentsOfPair
from advisor_data.bundled import bundled_solo_points
from advisor_power import components
from advisor_power.components import PARTS, ComponentWeights, fit_components
from advisor_power.report import parts_notes

PAIR = ("triad", "matmul-bf16")
SHARED = ("mobilenet-train-b2", "triad")
"""A pair that is to share the GPU."""

APART = ("gemm", "triad")
"""One that is not."""


def told(advisor: Advisor, *words: str) -> dict[str, Any]:
    return answered(advisor, "power", "components", *words)


def sums(power: dict[str, Any]) -> bool:
    parts = [part["value"] for part in power["components_w"].values()]
    return sum(parts) == pytest.approx(power["power_w"])


def test_parts_of_a_job(advisor: Advisor) -> None:
    """Their keys are those of the service."""
    found = told(advisor, "triad")
    assert read(ComponentsOfJob, json.dumps(found)).job == "triad"
    powers: list[dict[str, Any]] = [one["power"] for one in found["shares"]]
    for power in powers:
        assert sums(power)
        # No bundled point was measured with the memory's own sensor.
        assert (power["power_basis"], power["memory_basis"]) == ("measured", "estimated")
        assert power["headroom_w"] == pytest.approx(700 - power["power_w"])
    parts = powers[-1]["components_w"]
    assert list(parts) == list(PARTS)
    assert parts["memory"]["value"] > parts["tensor"]["value"] == 0


def test_parts_of_a_pair_swap_with_the_jobs(advisor: Advisor) -> None:
    """Measured splits among predicted ones; with the jobs swapped, the answer is swapped."""
    there, back = (
        {one["split"]: one for one in told(advisor, *jobs, "--splits")["splits"]}
        for jobs in (PAIR, PAIR[::-1])
    )
    assert all(sums(one["power"]) for one in there.values())
    even, mirrored = there["50/50"], back["50/50"]
    assert even["power"] == mirrored["power"]
    assert [there[split]["power"]["power_basis"] for split in ("50/50", "11/90")] == [
        "measured", "estimated"
    ]  # fmt: skip
    assert even["causes_mhz"] == mirrored["causes_mhz"][::-1]
    caused = sum(cause["value"] for cause in even["causes_mhz"])
    assert caused == pytest.approx(even["clock_loss_mhz"])
    assert "the power limit is reached" in even["jostling"]


def test_far_from_the_limit_nobody_lowers_the_clock(advisor: Advisor) -> None:
    found = told(advisor, "bert-infer-b2", "mobilenet-infer-b2", "--splits")
    assert {one["causes_mhz"] for one in found["splits"]} == {None}
    assert all("it lowers no clock" in one["jostling"] for one in found["splits"])


def test_bars_are_as_long_as_the_power(advisor: Advisor) -> None:
    """A letter for each fiftieth of the limit; the rest is dots."""
    said = advisor("power", "components", "gemm")
    assert said.code == 0, said.err
    bars = [
        word for line in said.out.splitlines() for word in line.split() if word.startswith("ff")
    ]
    whole = told(advisor, "gemm")["shares"]
    assert len(bars) == len(whole)
    for bar, one in zip(bars, whole, strict=True):
        assert (len(bar), len(bar.rstrip("."))) == (50, round(50 * one["power"]["power_w"] / 700))
    assert "~" in said.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["triad", "gemm"], "triad gemm --splits"),
        (["triad", "--splits"], "needs a second job"),
        (["triadd"], "similar names: triad"),
        (["triad", "--gpu-model", "NVIDIA B200"], "no profile on NVIDIA B200"),
    ],
)
def test_mistakes_say_what_to_do(advisor: Advisor, words: list[str], says: str) -> None:
    assert says in refusal(advisor("power", "components", *words))


def test_recommendation_says_no_parts_unless_it_is_asked(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fitting takes longer than the recommendation."""
    monkeypatch.setattr(components, "fit_components", None)
    answer = answered(advisor, "recommend", *SHARED)
    assert answer["components"] is answer["components_unknown"] is None


def test_wherever_parts_are_shown_they_are_said_not_to_be_identified(advisor: Advisor) -> None:
    """Of a job, of a pair with one sentence at its end, and below a recommendation."""
    alone = advisor("power", "components", "triad").out
    pair = advisor("power", "components", *PAIR, "--splits").out
    assert pair.splitlines()[-1].startswith("where the clock falls most: at ")
    recommended = advisor("recommend", *SHARED, "--components").out
    assert "goes to; ~ estimated, ? extrapolated" in recommended
    assert recommended.splitlines()[-1].startswith("at ")
    page = Path(advisor_api.__file__).parent / "pages/power_parts.js"
    of_pair = read(ComponentsOfPair, json.dumps(told(advisor, *SHARED, "--splits")))
    for shown in (alone, pair, recommended, page.read_text("utf-8"), [*parts_notes(of_pair)]):
        assert NOT_IDENTIFIED in shown
    assert "what the power goes to is not known" in advisor("recommend", *APART, "--components").out


@pytest.fixture
def api(advisor: Advisor, tmp_path: Path) -> Iterator[Api]:
    """A service with the home of the command line."""
    del advisor
    with running(tmp_path / "home") as api:
        yield api


@pytest.mark.slow
def test_service_says_what_the_command_line_says(advisor: Advisor, api: Api) -> None:
    for pair in (SHARED, PAIR):
        asked = {"jobs": [{"job": job} for job in pair], "components": True}
        said = answered(advisor, "recommend", *pair, "--components")
        assert api.post("/v1/recommendations", asked) == said
    for model in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"):
        found = api.get("/v1/profiles/triad/components", gpu_model=model)
        assert found == told(advisor, "triad", "--gpu-model", model)
    found = api.get(f"/v1/pairs/{PAIR[0]}/{PAIR[1]}/components")
    assert found == told(advisor, *PAIR, "--splits")
    status, code, message = error_of(api.ask("GET", "/v1/profiles/triadd/components"))
    assert (status, code, "similar names: triad" in message) == (422, "bad-input", True)


def test_service_fits_once_for_each_state_of_the_store(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is asked; new points change what is said."""
    fits: list[int] = []

    def counted(points: Sequence[SoloPoint]) -> ComponentWeights:
        fits.append(len(points))
        return fit_components(points)

    monkeypatch.setattr(components, "fit_components", counted)
    for pair in (SHARED, SHARED[::-1], PAIR):
        asked = {"jobs": [{"job": job} for job in pair], "components": True}
        api.post("/v1/recommendations", asked)
    api.get("/v1/profiles/triad/components")
    before = api.get("/v1/profiles/walsh/components")
    assert len(fits) == 1
    (bundled,) = [
        p
        for p in bundled_solo_points(["walsh"])
        if p.share_percent == 100 and p.gpu_model == before["gpu_model"] and not p.flags
    ]
    newer = replace(
        bundled, memory_power_w=80.0, started_at="2026-11-25T23:00:00.000000Z", run="mine"
    )
    api.post("/v1/points", {"points": [to_row(newer)]}, api.token("write"))
    after = api.get("/v1/profiles/walsh/components")
    assert fits == [fits[0], fits[0] + 1]
    assert after["shares"][-1]["power"]["memory_basis"] == "measured"
