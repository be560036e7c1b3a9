"""Who is taken to share: never beyond memory, floors or namespaces, and no job twice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.objectives import NO_PRICES
from advisor.decide.limits import Request
from advisor.predict.profiles import Profile, make_profiles
from advisor_audit.audit import SavedInWorlds, interval, saved
from advisor_audit.packing import (
    Packer,
    SeenKind,
    Survey,
    Walk,
    Walked,
    Workload,
    make_packer,
    workload_of,
)
from advisor_audit.phases import Segment
from advisor_audit.sources import Owner
from advisor_data.bundled import bundled_solo_points
from advisor_models.one_window import bundled_head

MODEL, CARD_MIB, HOUR_S = "NVIDIA H100 80GB HBM3", 81559.0, 3600.0


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    found = make_profiles(bundled_solo_points())
    return [profile for (_, model), profile in found.items() if model == MODEL]


@pytest.fixture(scope="module")
def packer(profiles: Sequence[Profile]) -> Packer:
    kinds = [SeenKind(MODEL, profile.job, False, ()) for profile in profiles]
    limits = Request(memory_mib=CARD_MIB)
    return make_packer(kinds, profiles, 70.0, "energy-efficiency", limits, NO_PRICES)


@given(counts=st.dictionaries(st.integers(0, 23), st.integers(1, 9), min_size=1, max_size=8))
def test_every_job_has_one_seat_and_every_limit_holds(
    counts: dict[int, int], packer: Packer, profiles: Sequence[Profile]
) -> None:
    found = packer.pack(counts)
    seated = Counter[int]()
    for (members, level), count in found.items():
        seated.update({kind: count * n for kind, n in Counter(members).items()})
        if len(members) > 1:
            one = packer.set_of(members, level)
            assert sum(profiles[kind].memory_used_mib or 0 for kind in members) <= CARD_MIB
            assert all(s >= f - 1e-9 for s, f in zip(one.speeds, one.floors, strict=True))
            assert one.saved_w > 0
    assert seated == counts


def segment(gpu: int, owner: Owner, begin_h: float, end_h: float, memory: float = 6000) -> Segment:
    means = {"power_w": 180.0, "sm_active_percent": 12.0, "memory_used_mib": memory}
    means |= {"dram_active_percent": 8.0, "memory_busy_percent": 8.0, "sm_clock_mhz": 1980.0}
    return Segment(
        gpu=f"GPU-{gpu}",
        model=MODEL,
        host="node",
        owner=owner,
        state="busy",
        phase=0,
        begin_s=begin_h * HOUR_S,
        end_s=end_h * HOUR_S,
        seen_s=(end_h - begin_h) * HOUR_S,
        means=means,
        spread=0.0,
    )


def packed(
    segments: Sequence[Segment], within: str = "namespace", hours: int = 4, worlds: int = 0
) -> tuple[Walked, SavedInWorlds | None]:
    """What was packed, and what is saved in worlds."""
    survey = Survey()
    survey.add_page(segments)
    kinds = sorted({kind for one in segments if (kind := survey.kind_of(one))})
    for one in segments:
        if kind := survey.kind_of(one):
            survey.count(one, kind)

    def packers(profiles: Sequence[Profile]) -> dict[str, Packer]:
        limits = Request(memory_mib=CARD_MIB)
        return {MODEL: make_packer(kinds, profiles, 70.0, "energy-efficiency", limits, NO_PRICES)}

    told = packers(survey.profiles(kinds, bundled_head()))
    numbers = {kind: n for n, kind in enumerate(kinds)}
    walk = Walk(survey, told, numbers, within, Walked(900.0, every=4))
    walk.page(segments, 0.0, hours * HOUR_S)
    guesses = survey.guesses(kinds, bundled_head())
    in_worlds = (packers(guesses(world)) for world in range(worlds))
    return walk.walked, saved(walk.walked, told, in_worlds) if worlds else None


def walked(segments: Sequence[Segment], within: str = "namespace") -> Walked:
    return packed(segments, within)[0]


def test_jobs_share_while_they_overlap() -> None:
    """Two hours together of four are two hours of a set; before and after each is alone."""
    a, b = Owner("team", "a", "c"), Owner("team", "b", "c")
    found = walked([segment(0, a, 0, 3), segment(1, b, 1, 4)])
    assert sum(found.hours.values()) == pytest.approx(2)
    assert found.shared == {Workload("team", "a"): 2.0, Workload("team", "b"): 2.0}
    assert found.most_now == 2
    assert 1 <= max(slot.cards for slot in found.top) < 1.2


def test_strangers_and_what_does_not_fit_stay_apart() -> None:
    a, b = Owner("red", "a", "c"), Owner("blue", "b", "c")
    strangers = [segment(0, a, 0, 4), segment(1, b, 0, 4)]
    assert not walked(strangers).hours
    assert sum(walked(strangers, "all").hours.values()) == pytest.approx(4)
    large = [segment(0, a, 0, 4, 50000), segment(1, a._replace(name="b"), 0, 4, 50000)]
    assert not walked(large).hours
    several = walked([segment(0, a, 0, 4), segment(1, a, 1, 4), segment(2, b, 0, 4)])
    assert several.apart == {"several GPUs": 7.0}


def test_without_any_owner_all_are_of_one() -> None:
    unnamed = [segment(n, Owner("", f"GPU-{n} #1"), 0, 4) for n in range(2)]
    assert sum(walked(unnamed).hours.values()) == pytest.approx(4)
    named = segment(2, Owner("team", "a", "c"), 0, 4)
    assert not walked([*unnamed, named]).hours


def test_ranges_are_of_worlds() -> None:
    """Each packs all again: around what was packed, wider than the law, the same each time."""
    seen = {"gpu_busy_percent": 15.0, "memory_busy_percent": 8.0, "sm_clock_mhz": 1980.0}
    seen |= {"power_w": 180.0, "memory_used_mib": 6000.0}
    owners = [Owner("team", f"job{n}", "c") for n in range(6)]
    team = [replace(segment(n, one, 0, 4), means=seen) for n, one in enumerate(owners)]
    walked, found = packed(team, worlds=6)
    assert found
    freed_h = sum(h * (len(key.members) - 1) for key, h in walked.hours.items())
    hours = interval(found.freed_h)
    assert 0.4 * freed_h < hours.low < hours.value < hours.high <= freed_h + 1e-9
    assert found.freed_h[:, 0].std() > 0
    assert found.freed_h.std() > found.freed_h[:, 0].std()
    np.testing.assert_array_equal(found.kwh, packed(team, worlds=6)[1].kwh)  # type: ignore[union-attr]
    assert ((found.cards >= 1) & (found.cards <= 6)).all()


def test_pods_of_one_workload_have_one_name() -> None:
    names = {
        "web-7d9c5b6f4d-x2x7k": "web",
        "train-bert-w8l4z": "train-bert",
        "ps-0-12": "ps",
        "bert-train": "bert-train",
        "job 4711": "job 4711",
    }
    assert {name: workload_of(Owner("", name)).name for name in names} == names


def test_a_batch_job_is_known_by_its_number(profiles: Sequence[Profile]) -> None:
    one = segment(0, Owner("", "job 4711"), 0, 1)
    survey = Survey(known={(one.model, "4711"): profiles[0]})
    survey.add_page([one])
    kind = survey.kind_of(one)
    assert kind is not None
    assert kind.known == "4711"


def test_a_card_that_tells_no_memory_makes_no_kind() -> None:
    one = segment(0, Owner("team", "job"), 0, 1)
    one = replace(
        one, model="none", means={**one.means, "memory_used_mib": 0, "memory_free_mib": 0}
    )
    survey = Survey()
    survey.add_page([one])
    assert survey.kind_of(one) is None
