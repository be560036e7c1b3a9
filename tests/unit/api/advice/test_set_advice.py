"""What is known beside profiles and physics counts for sets as it does for pairs."""

import pytest
from advised import CARD, UUID, known, model, profile, profiles

from advisor.core.gpu import Split, without_limits
from advisor.core.objectives import Policy, Prices
from advisor.decide.limits import Request
from advisor.errors import InputError
from advisor.predict.card_factor import CardFactor
from advisor.predict.measured import Window
from advisor.predict.profiles import Profile
from advisor.settings import read_settings
from advisor.wire.answers import DriftedJob, Option, Recommendation
from advisor.wire.requests import JobRequest, RecommendationRequest
from advisor_advice.answers import known_set, request_of, to_wire
from advisor_advice.conditions import NOTHING, Conditions

SMALL = profiles(*(profile(job, power_limit_w=None) for job in "abc"))
FILLS = {"sm_active_percent": [95.0] * 10}
ANY = Request(policy=Policy(min_speed=0.0))
FREE = without_limits("uncapped", 3)


def advised(
    conditions: Conditions = NOTHING,
    request: Request = ANY,
    of: tuple[Profile, ...] = SMALL.profiles,
) -> Recommendation:
    return to_wire(known_set(known(model(), profiles(*of), None, conditions)).answer(request))


def way(told: Recommendation, split: str = "uncapped") -> Option:
    return next(way for way in told.candidates if way.split == split)


def window(split: Split = FREE) -> Window:
    return Window(split, (70.0,) * 3, 500.0, UUID, "2026-11-25T12:00:00Z")


def test_a_measured_split_is_looked_at_where_its_count_is_safe() -> None:
    jobs = (profile("a"), profile("b"), profile("c", columns=FILLS))
    known = Conditions(windows={("a", "b", "c"): [window(Split((100.0, 100.0, 37.5)))]})
    assert advised(known, of=jobs).searched == advised(of=jobs).searched + 1
    unsafe = (*jobs[:2], profile("c", columns=FILLS, wrong_units=frozenset({48, 50})))
    assert advised(known, of=unsafe).searched == advised(of=unsafe).searched


def test_card_and_drift_are_taken_in_and_told() -> None:
    factor = CardFactor(
        gpu_uuid="GPU-2", log_factor=0.1, log_stderr=0.01, references=3, observations=0
    )
    drift = DriftedJob(
        job="a", gpu_model=CARD, gpu_uuid="GPU-2", quantity="rate", ratio=0.5,
        since="2026-11-01T00:00:00Z", observations=5,
    )  # fmt: skip
    told = advised(Conditions(gpu_uuid="GPU-2", factor=factor, drifts=(drift,)))
    now, before = way(told), way(advised())
    assert now.power_w.value > 1.05 * before.power_w.value
    assert now.jobs[0].speed.low < 0.9 * before.jobs[0].speed.low
    assert (told.card, told.drifts) == (factor.told, (drift,))
    assert factor.text in told.warnings
    assert any(text.endswith("advisor profile a") for text in told.warnings)


def test_cost_and_host_cores_decide_as_for_pairs() -> None:
    """The watts of servers make sharing save more; a host without cores forbids it."""
    prices = Prices(gpu_hour=2.5, kwh=0.15, host_w=300.0)
    told = advised(request=Request(policy=Policy(min_speed=0.0, prices=prices)))
    chosen = told.choice
    assert chosen and chosen.cost_saved and chosen.cost_saved.value > 0.3  # noqa: PT018
    assert way(told).energy_saved.value > way(advised()).energy_saved.value
    busy = tuple(profile(job, columns={"job_cpu_percent": [150.0] * 10}) for job in "abc")
    assert advised(of=busy).needs.host_cores == pytest.approx(4.5)
    few = advised(of=busy, request=Request(policy=ANY.policy, host_cores=4.0))
    wrong = ("4.5 host cores are wanted, 4 are there",)
    assert (told.verdict, few.verdict, way(few).violations) == ("share", "do not share", wrong)


def test_work_of_a_set_is_refused() -> None:
    asked = RecommendationRequest.of(JobRequest(job="a", work_s=3600.0), "b", "c")
    with pytest.raises(InputError, match="nothing of 3 jobs"):
        request_of(asked, read_settings({}))
