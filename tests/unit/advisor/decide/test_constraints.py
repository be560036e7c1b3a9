"""Request: what breaks one, by how much, and what the message says."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from made_up_profiles import P99_BESIDE, Physics, Scripted, profile

from advisor.core.gpu import (
    EQUAL,
    MEMORY_MIB,
    MEMORY_PART,
    UNCAPPED,
    Split,
    check_card_memory,
    parse_memory_mib,
    without_limits,
)
from advisor.core.objectives import POLICY, Interval, Policy
from advisor.decide.decision import Outlook, decide
from advisor.decide.limits import (
    Request,
    check_jobs_fit,
    memory_unknown,
    most_power_w,
    sure_p99_ms,
)
from advisor.errors import InputError
from advisor.predict.predictions import Prediction, Predictions, predict_exclusive
from advisor.predict.profiles import Profile, Serving

FREE = Request(policy=Policy(min_speed=0, p99_times_alone=0))


P99_MS = ((10.0, 200.0), (50.0, 20.0), (100.0, 8.0))


A, B = profile("a"), profile("b", [1.0] * 10)


"""Each draws 400 W on the whole GPU and needs 1000 MiB."""


SERVER = profile(
    "server",
    [100.0] * 10,
    serving=Serving(offered_rate=100, rate_noise=None, latency_p99_ms=P99_MS),
)


def hotter(job: Profile, power_w: float) -> Profile:
    return replace(job, values={**job.values, "power_w": job.values["power_w"] * power_w / 400})


def predicted(
    jobs: tuple[Profile, Profile] = (A, B),
    split: Split = EQUAL,
    speeds: tuple[float, float] = (1.0, 1.0),
    power_w: float = 500.0,
) -> Prediction:
    (found,) = Scripted({split: (*speeds, power_w)}, off=0.0).predict(jobs, [split])
    return found


def broken_by(p: Prediction, jobs: tuple[Profile, Profile], limits: Request) -> tuple[Any, ...]:
    (found,) = limits.violations(Predictions.of([p]), jobs)
    return found


def broken(jobs: tuple[Profile, Profile], limits: Request, **fields: Any) -> dict[str, Any]:
    found = broken_by(predicted(jobs, **fields), jobs, limits)
    return {violation.text: pytest.approx(violation.by) for violation in found}


# what is refused


@pytest.mark.parametrize("speed", [-0.01, 1.01, float("nan")])
def test_speeds_that_no_job_has(speed: float) -> None:
    with pytest.raises(InputError) as refused:
        Request(min_speed={"a": 0.5, "b": speed})
    assert str(refused.value) == (
        f"a minimum speed of {speed:g} for b is not possible. 1 is as fast as alone on the whole "
        "GPU. give a number from 0 to 1, such as 0.5."
    )
    assert Request(min_speed={"a": 0.0, "b": 1.0}).min_speed_of("a") == 0


@pytest.mark.parametrize("value", [0.0, -3.0, float("nan")])
def test_a_power_or_a_latency_of_nothing(value: float) -> None:
    limits: dict[str, dict[str, Any]] = {
        "max_power_w": {"max_power_w": value},
        "default_max_p99_ms": {"default_max_p99_ms": value},
        "max_p99_ms of server": {"max_p99_ms": {"server": value}},
    }
    for name, fields in limits.items():
        with pytest.raises(InputError) as refused:
            Request(**fields)
        assert str(refused.value) == f"{name} is {value:g}. give a number above 0."
    Request(max_power_w=0.5, default_max_p99_ms=0.5, max_p99_ms={"server": 0.5})


def test_limits_for_jobs_that_are_not_there() -> None:
    with pytest.raises(InputError) as refused:
        Request(min_speed={"d": 0.1, "a": 0.1, "c": 0.1}).check_limits((A, B))
    assert str(refused.value) == "a minimum speed was given for c, d. the jobs are a and b."
    with pytest.raises(InputError, match=r"^a latency was given for c\. the jobs are a\.$"):
        Request(max_p99_ms={"c": 5}).check_limits((A, A))
    Request(min_speed={"a": 0.1}, max_p99_ms={"server": 5}).check_limits((A, SERVER))


def test_latencies_that_nobody_measured() -> None:
    text = (
        "no latency of a{} was measured. a limit cannot be held that nothing is known of. "
        "let the job report latencies (docs/job-file.md, Servers) and profile it again."
    )
    everyone = Request(default_max_p99_ms=5)
    for limits, jobs, others in (
        (Request(max_p99_ms={"a": 5}), (A, SERVER), ""),
        (everyone, (A, B), " or b"),
        (everyone, (A, replace(SERVER, job="b", serving=serving(()))), " or b"),
    ):
        with pytest.raises(InputError) as refused:
            limits.check_limits(jobs)
        assert str(refused.value) == text.format(others)
    everyone.check_limits((A, SERVER))
    FREE.check_limits((A, B))


def serving(latencies: tuple[tuple[float, float], ...], offered: float | None = 100) -> Serving:
    return Serving(offered_rate=offered, rate_noise=None, latency_p99_ms=latencies)


# speeds


def test_what_a_job_must_keep() -> None:
    limits = Request(min_speed={"a": 0.7}, policy=Policy(min_speed=0.3))
    assert [limits.floor(job) for job in (A, B)] == [0.7, 0.3]
    assert limits.floor(SERVER) == pytest.approx(0.98)
    assert Request(min_speed={"server": 0.0}).floor(SERVER) == 0.0
    assert limits.floor(replace(SERVER, serving=serving(P99_MS, offered=None))) == 0.3


@given(st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_job_is_held_to_its_speed(speed: float, least: float) -> None:
    found = broken((A, B), replace(FREE, min_speed={"b": least}), speeds=(1, speed))
    assert list(found.values()) == ([1 - speed / least] if speed < least else [])


def test_what_is_said_of_speeds() -> None:
    texts = {
        "a would run at 12.3 % of its speed alone (12 % at worst), below 40 %": 1 - 0.1234 / 0.4,
        "server would serve 50 % of its demand (50 % at worst), below 98 %": 1 - 0.5 / 0.98,
    }
    request = Request(policy=Policy(p99_times_alone=0))
    assert broken((A, SERVER), request, speeds=(0.1234, 0.5)) == texts
    p = predicted()
    wide = replace(p, parts=(replace(p.parts[0], speed=Interval(0.66, 0.18, 0.9)), p.parts[1]))
    (found,) = broken_by(wide, (A, B), Request())
    assert found.text == (
        "a keeps 40 % of its speed alone with a probability of 87.3 %, below 90 % "
        "(66 % expected, 18 % at worst)"
    )


@pytest.mark.parametrize(
    ("low", "kept"), [(0.23, True), (0.22, False)], ids=["nine of ten", "fewer"]
)
@pytest.mark.parametrize(
    "asked", [Request(), Request(min_speed={"a": 0.4}), Request(min_speed={"a": 0.4, "b": 0})]
)
def test_a_floor_holds_with_nine_chances_of_ten(low: float, kept: bool, asked: Request) -> None:
    """Of 0.66 expected; whether the floor was named, or is that of the policy."""
    p = predicted()
    wide = replace(p, parts=(replace(p.parts[0], speed=Interval(0.66, low, 0.9)), p.parts[1]))
    assert (broken_by(wide, (A, B), asked) == ()) is kept
    assert broken_by(wide, (A, B), replace(asked, policy=Policy(chance=0.5))) == ()


@pytest.mark.parametrize(("chance", "broken_limits"), [(0.8, 0), (0.9, 1)])
def test_a_server_keeps_its_demand_with_the_same_chance(chance: float, broken_limits: int) -> None:
    request = Request(policy=Policy(chance=chance, p99_times_alone=0))
    p = predicted((A, SERVER))
    part = replace(p.parts[1], speed=Interval(1.0, 0.94, 1.02))
    found = broken_by(replace(p, parts=(p.parts[0], part)), (A, SERVER), request)
    assert len(found) == broken_limits


def test_one_after_the_other_all_speeds_are_kept_but_requests_wait() -> None:
    """Half of the time is no half speed, and a server that may be off waits for nobody."""
    limits = Request(policy=Policy(min_speed=0.9))
    assert broken_by(predict_exclusive((A, B)), (A, B), limits) == ()
    (found,) = broken_by(predict_exclusive((A, SERVER)), (A, SERVER), limits)
    assert (found.text, found.by) == ("server answers no requests while another job runs", 1)
    off = Request(min_speed={"server": 0})
    assert broken_by(predict_exclusive((A, SERVER)), (A, SERVER), off) == ()
    # Side by side it answers.
    assert broken((A, SERVER), FREE) == {}


# latencies


@given(st.integers(10, 90), st.floats(1, 300), st.sampled_from([0.5, 0.9, 0.95]))
def test_a_latency_holds_with_a_chance(share: int, most_ms: float, chance: float) -> None:
    """As it is expected beside others, whether the server is the first or the second."""
    alone_ms = SERVER.serving and SERVER.serving.p99_alone_ms(share)
    assert alone_ms
    sure_ms = alone_ms * sure_p99_ms(P99_BESIDE, chance)
    request = Request(policy=Policy(min_speed=0, chance=chance), default_max_p99_ms=most_ms)
    late = [pytest.approx(sure_ms / most_ms - 1)] if sure_ms > most_ms else []
    split = Split((float(share), 100.0 - share))
    assert list(broken((SERVER, A), request, split=split).values()) == late
    assert list(broken((A, SERVER), request, split=Split(split.shares[::-1])).values()) == late


def test_what_is_said_of_latencies() -> None:
    split, text = (
        Split((50.0, 50.0)),
        "server at 50 % keeps a p99 latency of {} ms with a probability of {} %, below 90 % "
        "(28 ms expected, 60 at worst)",
    )
    sure_ms = 28 * (60 / 28) ** 0.73
    for limits, above in (
        (Request(default_max_p99_ms=50), None),
        (Request(default_max_p99_ms=48), ("48", "89.3")),
        (Request(default_max_p99_ms=48, max_p99_ms={"server": 90}), None),
        (Request(default_max_p99_ms=90, max_p99_ms={"server": 37.5}), ("37.5", "79.2")),
        (Request(default_max_p99_ms=90, max_p99_ms={"a": 1}), None),
        # Eight alone, five times that, which nobody gave: with 7 chances of 10.
        (Request(), None),
        (Request(policy=Policy(p99_times_alone=0)), None),
    ):
        expected = {} if above is None else {text.format(*above): sure_ms / float(above[0]) - 1}
        assert broken((SERVER, A), limits, split=split) == pytest.approx(expected, rel=0.01)
    for chance in (0.9, 0.5):
        limits = Request(policy=Policy(p99_times_alone=3, chance=chance))
        (said,) = broken((SERVER, A), limits, split=split)
        assert said == (
            "server at 50 % would have a p99 latency of 28 ms (60 at worst), above 24 ms"
        )


def test_all_servers_together_keep_their_limits_with_the_chance() -> None:
    """Copies are right or wrong together, others each for themselves."""
    given, both = Request(default_max_p99_ms=30), (SERVER, replace(SERVER, job="other"), A)
    assert given.p99_chance(SERVER, (SERVER, SERVER, A)) == POLICY.chance
    assert given.p99_chance(SERVER, both) ** 2 == pytest.approx(POLICY.chance)
    assert Request().p99_chance(SERVER, both) ** 2 == pytest.approx(0.7)
    assert Request().p99_chance(SERVER, both, is_given=True) == given.p99_chance(SERVER, both)


def test_whose_limit_of_latencies_counts() -> None:
    """Its own, that of all, then the policy's times of what it is alone on the whole GPU."""
    limits = Request(default_max_p99_ms=30, max_p99_ms={"a": 5})
    assert [limits.longest_p99_ms(one) for one in (A, B, SERVER)] == [5, None, 30]
    assert Request().longest_p99_ms(A) is None
    assert Request().longest_p99_ms(SERVER) == POLICY.p99_times_alone * 8
    untimed = replace(SERVER, serving=serving(()))
    free = Request(policy=Policy(p99_times_alone=0))
    assert Request().longest_p99_ms(untimed) is free.longest_p99_ms(SERVER) is None


def test_on_a_gpu_of_its_own() -> None:
    limits = Request(max_power_w=320, default_max_p99_ms=6.4)
    assert {v.text: v.by for v in limits.violations_alone(SERVER)} == {
        "server alone draws 400 W, at most 320 W are allowed": pytest.approx(0.25),
        "server alone at 100 % has a p99 latency of 8 ms, above 6.4 ms": pytest.approx(0.25),
    }
    assert Request(max_power_w=400, default_max_p99_ms=8).violations_alone(SERVER) == ()


# power


@given(st.floats(100, 1000), st.floats(100, 1000), st.sampled_from([EQUAL, UNCAPPED]))
def test_a_ceiling_of_power(power_w: float, most_w: float, split: Split) -> None:
    limits = Request(policy=Policy(min_speed=0), max_power_w=most_w)
    found = broken((A, B), limits, split=split, power_w=power_w)
    assert list(found.values()) == ([power_w / most_w - 1] if power_w > most_w else [])
    p = Predictions.of([predicted(split=split, power_w=power_w)])
    assert most_power_w(p, 0, (A, B)) == power_w


@pytest.mark.parametrize("turned", [False, True])
def test_one_after_the_other_the_hottest_job_counts(turned: bool) -> None:
    """Not the mean of both, which is never drawn."""
    jobs = (hotter(A, 600), B) if not turned else (B, hotter(A, 600))
    p = predict_exclusive(jobs)
    assert most_power_w(Predictions.of([p]), 0, jobs) == 600
    assert broken_by(p, jobs, Request(max_power_w=600)) == ()
    (found,) = broken_by(p, jobs, Request(max_power_w=500))
    assert found.text == "a alone draws 600 W, at most 500 W are allowed"
    assert found.by == pytest.approx(0.2)


def test_a_ceiling_that_only_the_expected_power_keeps_is_a_risk() -> None:
    p = replace(predicted(), power_w=Interval(500, 450, 600))
    limits = Request(policy=Policy(min_speed=0), max_power_w=550)
    assert broken_by(p, (A, B), limits) == ()
    columns = Predictions.of([p, replace(p, split=without_limits("exclusive"))])
    (found,) = limits.risks(columns, 0)
    assert found.text == "both draw 600 W, at most 550 W are allowed"
    assert found.by == pytest.approx(600 / 550 - 1)
    assert Request(max_power_w=600).risks(columns, 0) == FREE.risks(columns, 0) == ()
    assert limits.risks(columns, 1) == ()


# memory


@given(
    st.none() | st.floats(1, 60_000),
    st.none() | st.floats(1, 60_000),
    st.none() | st.floats(2000, 80_000),
)
def test_memory_of_all_jobs(a: float | None, b: float | None, card: float | None) -> None:
    jobs = replace(A, memory_used_mib=a), replace(B, memory_used_mib=b)
    limits = Request(policy=Policy(min_speed=0), memory_mib=card)
    needed, most = (a or 0) + (b or 0), MEMORY_PART * (card or 0)
    expected = [needed / most - 1] if card is not None and needed > most else []
    assert list(broken(jobs, limits).values()) == expected
    assert broken_by(predict_exclusive(jobs), jobs, limits) == ()


def test_a_card_on_which_a_job_does_not_run_alone() -> None:
    big = replace(B, memory_used_mib=3000.0)
    with pytest.raises(InputError) as refused:
        check_jobs_fit((A, big), 2999)
    assert str(refused.value) == (
        "b needs 3000 MiB of memory, the card has 2999 MiB. so it does not even run alone; it was "
        "measured on NVIDIA H200. give the memory of the card that the jobs will run on: "
        "--memory 80GiB, or `memory_mib` in a request."
    )
    for jobs, card in (((A, big), 3000), ((replace(A, memory_used_mib=None),), 0.5)):
        check_jobs_fit(jobs, card)


def test_what_is_not_known_of_memory() -> None:
    dark = replace(A, memory_used_mib=None)
    assert memory_unknown([dark], None) == (
        "the memory of the NVIDIA H200 is not known: whether the jobs fit was not checked",
    )
    assert memory_unknown([dark, B, dark], 2000) == (
        "the memory of a is not known, and taken as none",
    )


# together


def test_two_jobs_of_120000_mib_do_not_share_an_h200() -> None:
    large = profile("big", memory_used_mib=120_000.0)
    answer = decide(Outlook((large, large), Physics()), Request(policy=Policy(min_speed=0)))
    assert answer.choice is None
    text = "both need 240000 MiB of memory, 136582 MiB are there"
    assert answer.options[0].violations[0].text.startswith(text)
    # Alone on the card neither breaks anything.
    assert answer.apart.violations == ()


@pytest.mark.parametrize(("held_mib", "said"), [(107_000.0, True), (99_000.0, False)])
def test_memory_that_a_framework_holds_is_said_to_be_no_need(held_mib: float, said: bool) -> None:
    """JAX takes three quarters of a card as it starts, whatever it needs."""
    jobs = (profile("a", memory_used_mib=held_mib), profile("b", memory_used_mib=40_000.0))
    answer = decide(Outlook(jobs, Physics()), Request(policy=Policy(min_speed=0)))
    (text,) = {v.text for v in answer.options[0].violations if "MiB of memory" in v.text}
    assert ("again with XLA_PYTHON_CLIENT_PREALLOCATE=false, " in text) is said
    assert ("--gpu-memory-utilization 0.47, " in text) is said


def test_what_is_given_goes_before_what_is_known() -> None:
    """A card of the same name may have less, as in a slice of it."""
    assert Request().with_card_memory("NVIDIA H200").memory_mib == 143771
    assert Request(memory_mib=20_000).with_card_memory("NVIDIA H200").memory_mib == 20_000
    assert Request().with_card_memory("Card 5000").memory_mib is None


def test_a_card_too_small_for_one_job_alone_is_refused() -> None:
    """Not answered with "one after the other", which would not run either."""
    large = profile("big", memory_used_mib=60_000.0)
    with pytest.raises(InputError, match="big needs 60000 MiB of memory, the card has 40960"):
        decide(Outlook((large, profile("b")), Physics()), Request(memory_mib=40_960))
    check_jobs_fit((large,), None)


@pytest.mark.parametrize(
    ("text", "memory_mib"),
    [
        ("143771", 143771),
        ("80GiB", 81920),
        ("80 gib", 81920),
        ("141GB", 141e9 / 2**20),
        ("40960MiB", 40960),
        ("1.5GiB", 1536),
    ],
)
def test_sizes_have_units(text: str, memory_mib: float) -> None:
    assert parse_memory_mib(text) == pytest.approx(memory_mib)


@pytest.mark.parametrize("text", ["", "GB", "eighty", "-80GiB", "nan", "80TB", "8e4", "80 G B"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_memory_mib(text)
    assert str(refused.value) == (
        f"{text!r} is not a memory size. write MiB, or a unit: 143771, 80GiB or 141GB."
    )


@pytest.mark.parametrize("memory_mib", [141, 0, -1, math.nan, math.inf, 143771 * 2**20])
def test_gigabytes_and_bytes_given_as_mib_are_refused(memory_mib: float) -> None:
    with pytest.raises(InputError) as refused:
        check_card_memory(memory_mib)
    assert str(refused.value) == (
        f"no GPU has {memory_mib:g} MiB of memory. a number without a unit is in MiB. give the "
        "memory of the card, such as 143771 MiB: --memory 143771 or 80GiB."
    )
    with pytest.raises(InputError, match="no GPU has"):
        Request(memory_mib=memory_mib)


def test_every_known_card_has_a_memory_that_can_be_given() -> None:
    """So no declaration is in the wrong unit: cards have from 8 GB to 1 TB."""
    for memory_mib in MEMORY_MIB.values():
        assert 7_000 < memory_mib < 2**20
        check_card_memory(memory_mib)
