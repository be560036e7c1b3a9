"""Who is taken to share: never beyond memory, floors or namespaces, and no job twice."""

import math
import os
import pwd
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, strategies as st

from advisor.core.objectives import NO_PRICES
from advisor.decide.limits import Request
from advisor.predict.profiles import Profile, make_profiles
from advisor_audit.audit import (
    SavedInWorlds,
    _launch_here,  # pyright: ignore[reportPrivateUsage]
    interval,
    pairing_labels,
    saved,
)
from advisor_audit.packing import Packer, Survey, Walk, Workload, WorkloadKind
from advisor_audit.phases import LeftOut, Segment, Watched, gpu_pages, segments
from advisor_audit.sources import FAMILIES, Owner, Series, Source, metrics_for
from advisor_data.bundled import bundled_solo_points
from advisor_models.single_window import bundled_head

MODEL, CARD_MIB, HOUR_S = "NVIDIA H100 80GB HBM3", 81559.0, 3600.0


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    found = make_profiles(bundled_solo_points())
    return [profile for (_, model), profile in found.items() if model == MODEL]


@pytest.fixture(scope="module")
def packer(profiles: Sequence[Profile]) -> Packer:
    kinds = [WorkloadKind(MODEL, profile.job, False, ()) for profile in profiles]
    limits = Request(memory_mib=CARD_MIB)
    return Packer(kinds, profiles, 70.0, "energy-efficiency", limits, NO_PRICES)


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
        read_s=(end_h - begin_h) * HOUR_S,
        means=means,
        spread=0.0,
    )


def packed(
    segments: Sequence[Segment], within: str = "namespace", hours: int = 4, worlds: int = 0
) -> tuple[Walk, SavedInWorlds | None]:
    """What was packed, and what is saved in worlds."""
    survey = Survey()
    survey.add_page(segments)
    kinds = sorted({kind for one in segments if (kind := survey.kind_of(one))})
    for one in segments:
        if kind := survey.kind_of(one):
            survey.count(one, kind)

    def packers(profiles: Sequence[Profile]) -> dict[str, Packer]:
        limits = Request(memory_mib=CARD_MIB)
        return {MODEL: Packer(kinds, profiles, 70.0, "energy-efficiency", limits, NO_PRICES)}

    told = packers(survey.profiles(kinds, bundled_head()))
    walk = Walk(survey, told, {kind: n for n, kind in enumerate(kinds)}, within, 900.0, every=4)
    walk.page(segments, 0.0, hours * HOUR_S)
    guesses = survey.guesses(kinds, bundled_head())
    in_worlds = (packers(guesses(world)) for world in range(worlds))
    return walk, saved(walk, in_worlds) if worlds else None


def walked(segments: Sequence[Segment], within: str = "namespace") -> Walk:
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
    assert not walked([*unnamed, segment(2, Owner("team", "a", "c"), 0, 4)]).hours


def test_ranges_are_of_worlds() -> None:
    """Each packs all again: around what was packed, wider than the law, the same each time."""
    seen = {"gpu_busy_percent": 15.0, "memory_busy_percent": 8.0, "sm_clock_mhz": 1980.0}
    seen |= {"power_w": 180.0, "memory_used_mib": 6000.0}
    owners = [Owner("team", f"job{n}", "c") for n in range(6)]
    team = [segment(n, one, 0, 4)._replace(means=seen) for n, one in enumerate(owners)]
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
    assert {name: Workload.of(Owner("", name)).name for name in names} == names


def test_a_batch_job_is_known_by_its_number(profiles: Sequence[Profile]) -> None:
    one = segment(0, Owner("", "job 4711"), 0, 1)
    survey = Survey(stored_profiles={(one.model, "4711"): profiles[0]})
    survey.add_page([one])
    kind = survey.kind_of(one)
    assert kind is not None
    assert kind.profile_name == "4711"


def test_jobs_of_two_owners_with_one_name_are_two_jobs(profiles: Sequence[Profile]) -> None:
    """Neither has the profile of that name, and each is kept behind its owner."""
    seen = [segment(n, Owner(team, "web-7d9c5b6f4d-x2x7k"), 0, 600) for n, team in enumerate("ab")]
    survey = Survey(stored_profiles={(seen[0].model, "web"): profiles[0]})
    survey.add_page(seen[:1])
    of_one = survey.kind_of(seen[0])
    assert (of_one and of_one.profile_name) == "web"
    survey.add_page(seen[1:])
    assert [kind and kind.profile_name for kind in map(survey.kind_of, seen)] == ["", ""]
    assert [point.job for point in survey.points("2026-01-01T00:00:00Z")] == ["a.web", "b.web"]


def test_a_card_that_tells_no_memory_makes_no_kind() -> None:
    one = segment(0, Owner("team", "job"), 0, 1)
    one = one._replace(
        model="none", means={**one.means, "memory_used_mib": 0, "memory_free_mib": 0}
    )
    survey = Survey()
    survey.add_page([one])
    assert survey.kind_of(one) is None


# Which jobs are found in series that have gaps, late labels, restarts and what is no number.


STEP_S = 60.0


POWER, USED, SM = (
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_SM_ACTIVE",
)


JOB = {"namespace": "team", "pod": "bert-0", "container": "main"}


def rows(
    minutes: Sequence[int], active: float, labels: Mapping[str, str] = JOB, memory: float = 9000
) -> list[Series]:
    times_s = [STEP_S * (minute + 1) for minute in minutes]
    values = {POWER: 100 + 300 * active, USED: memory, SM: active}
    return [
        Series(
            {"UUID": "GPU-1", "__name__": name, "modelName": "NVIDIA H100", **labels},
            times_s,
            [value] * len(times_s),
        )
        for name, value in values.items()
    ]


def site_of(series: Sequence[Series], carriers: Sequence[str] = ()) -> Source:
    return cast(
        "Source",
        SimpleNamespace(
            metrics=metrics_for({one.metric for one in series}),
            carriers=frozenset(carriers),
            families=FAMILIES,
            step_s=STEP_S,
        ),
    )


def found(
    series: Sequence[Series],
    minutes: int,
    *,
    carriers: Sequence[str] = (),
    cuts: Sequence[int] = (),
) -> list[Segment]:
    """What is found, where pages end at `cuts`."""
    site = site_of(series, carriers)
    watched, result = Watched(), list[Segment]()
    for a, b in pairwise([0, *cuts, minutes]):
        for page in gpu_pages(series, site, "namespace", a * STEP_S, b - a).values():
            result += segments(page, watched)
    return result


def told(segments: Sequence[Segment]) -> list[tuple[str, str, float]]:
    """State, owner and minutes of each."""
    return [
        (s.state, s.owner.name if s.owner else "", (s.end_s - s.begin_s) / STEP_S) for s in segments
    ]


@pytest.mark.parametrize(
    ("name", "bad", "without"),
    [
        (POWER, 3.7e6, 0),
        (POWER, 1500.0, 0),
        (USED, 2.0**32 - 1, 0),
        (SM, 4e7, 0),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 9e13, 1),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0.0, 1),
        # DCGM's own word for no value is no fault.
        (POWER, 2.0**47, 0),
    ],
)
def test_one_impossible_sample_costs_itself_alone(name: str, bad: float, without: int) -> None:
    """Whatever the source, the means of the job are those of its other samples."""
    series = rows(range(30), 0.5)[without:]
    if without:
        times_s = [STEP_S * (minute + 1) for minute in range(30)]
        labels = {"UUID": "GPU-1", "__name__": name, **JOB}
        series.append(Series(labels, times_s, [1e9 + 250.0 * 1000 * at_s for at_s in times_s]))
    limits = Series(
        {"UUID": "GPU-1", "__name__": "DCGM_FI_DEV_ENFORCED_POWER_LIMIT"}, [60.0], [700.0]
    )
    (right,), (_, no_example) = _page_of([*series, limits])
    next(one for one in series if one.metric == name).values[10] = bad
    (found,), (count, example) = _page_of([*series, limits])
    expected = {**right.means, "power_w": pytest.approx(right.means["power_w"])}
    assert (found.state, found.means) == (right.state, expected)
    assert (count, no_example) == (bad != 2.0**47, "")
    assert bool(example) == bool(count)


def _page_of(series: Sequence[Series]) -> tuple[list[Segment], LeftOut]:
    pages = gpu_pages(series, site_of(series), "namespace", 0.0, 30)
    return [*segments(pages["GPU-1"], Watched())], pages["GPU-1"].left_out


def test_start_pause_change_and_end() -> None:
    """A job is busy, waits for 20 minutes, goes on, gets heavier, and leaves the GPU free."""
    series = [
        *rows(range(10), 0.0, {}, memory=0),
        *rows(range(10, 40), 0.3),
        *rows(range(40, 60), 0.0),
        *rows(range(60, 90), 0.3),
        *rows(range(90, 120), 0.7),
        *rows(range(120, 130), 0.0, {}, memory=0),
    ]
    result = found(series, 130)
    assert told(result) == [
        ("free", "", 10),
        ("busy", "bert-0", 30),
        ("paused", "bert-0", 20),
        ("busy", "bert-0", 30),
        ("busy", "bert-0", 30),
        ("free", "", 10),
    ]
    assert [s.phase for s in result if s.state == "busy"] == [0, 0, 1]
    assert [s.means["sm_active_percent"] for s in result if s.state == "busy"] == pytest.approx(
        [30, 30, 70]
    )


def test_what_was_not_seen_belongs_to_nobody() -> None:
    """A gap of four minutes is bridged, and counts no reading; one of ten minutes is not."""
    result = found(rows([*range(20), *range(24, 40), *range(50, 60)], 0.5), 60)
    assert told(result) == [("busy", "bert-0", 40), ("unseen", "", 10), ("busy", "bert-0", 10)]
    assert result[0].read_s == 36 * STEP_S


def test_job_without_a_name_stays_one_over_a_short_gap() -> None:
    """A busy host reads late; after ten minutes without a reading it is another one."""
    series = rows([*range(10), *range(12, 30), *range(40, 50)], 0.5, {})
    expected = [("busy", "GPU-1 #1", 30), ("unseen", "", 10), ("busy", "GPU-1 #2", 10)]
    assert told(found(series, 50)) == expected
    for cut in (11, 12):  # pages may end in a gap
        names = {name for _, name, _ in told(found(series, 50, cuts=[cut])) if name}
        assert names == {"GPU-1 #1", "GPU-1 #2"}


def test_relabelled_pod_is_one_job() -> None:
    exporter = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x", "container": "c"}
    exported = {f"exported_{name}": value for name, value in JOB.items()}
    series = [
        *rows(range(20), 0.5, JOB),
        *rows(range(20, 23), 0.5, {}),
        *rows(range(23, 40), 0.5, JOB),
        *rows(range(40, 60), 0.5, {**exporter, **exported}),
        *rows(range(60, 70), 0.0, exporter, memory=0),
    ]
    assert told(found(series, 70)) == [("busy", "bert-0", 60), ("free", "", 10)]
    own = {**exporter, "pod": "gpu-metrics-x2x7k"}
    late = [*rows(range(20), 0.0, own, memory=0), *rows(range(20, 40), 0.5, {**own, **exported})]
    assert told(found(late, 40, carriers=["gpu-metrics"])) == [
        ("free", "", 20),
        ("busy", "bert-0", 20),
    ]


def test_pods_that_follow_and_pods_that_share() -> None:
    """Labels overlap by a minute where a pod follows another; a GPU that is shared is nobody's."""
    other = {**JOB, "pod": "vit-0"}
    follows = [*rows(range(21), 0.5), *rows(range(20, 40), 0.5, other)]
    assert told(found(follows, 40)) == [("busy", "bert-0", 20), ("busy", "vit-0", 20)]
    shares = [*rows(range(40), 0.5), *rows(range(20, 40), 0.5, other)]
    assert told(found(shares, 40)) == [("busy", "bert-0", 20), ("shared", "", 20)]


@pytest.mark.parametrize("cuts", [(), (25, 26)])
def test_pods_by_turns_share(cuts: Sequence[int]) -> None:
    """An exporter names one of three pods each minute, in any order, until one is left alone."""
    order = [*"abcbbacaabccaabbbcacbacbbcaabc", *"c" * 30]
    series = [
        one
        for minute, name in enumerate(order)
        for one in rows([minute], 0.5, {**JOB, "pod": f"{name}-0"})
    ]
    minutes = {state: m for state, _, m in told(found(series, 60, cuts=cuts))}
    assert minutes["busy"] == pytest.approx(25, abs=2), "five minutes are waited for a return"
    by_state = Counter(s.state for s in found(series, 60, cuts=cuts) if s.begin_s < 25 * STEP_S)
    assert set(by_state) == {"shared"}


def test_what_is_no_number_is_left_out() -> None:
    [power, used, active] = rows(range(30), 0.5)
    for place, value in ((3, math.nan), (4, 1.4e14), (5, -1.0), (6, math.inf)):
        active.values[place] = value
    result = found([power, used, active], 30)
    assert told(result) == [("busy", "bert-0", 30)]
    assert result[0].means["sm_active_percent"] == pytest.approx(50)


def test_power_from_a_total_that_begins_anew() -> None:
    """A total that falls back gives no power for that step, whatever the driver had counted."""
    times_s = [STEP_S * (n + 1) for n in range(20)]
    labels = {"UUID": "GPU-1", "__name__": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", **JOB}
    total = [300e3 * STEP_S * (n if n < 10 else n - 10) for n in range(20)]
    [one] = found([*rows(range(20), 0.5)[1:], Series(labels, times_s, total)], 20)
    assert one.means["power_w"] == pytest.approx(300)


def test_jobs_without_a_name() -> None:
    plain = [
        *rows(range(10), 0, {}, memory=3),
        *rows(range(10, 30), 0.5, {}),
        *rows(range(30, 40), 0, {}, memory=3),
        *rows(range(40, 60), 0.5, {}),
    ]
    assert told(found(plain, 60)) == [
        ("free", "", 10),
        ("busy", "GPU-1 #1", 20),
        ("free", "", 10),
        ("busy", "GPU-1 #2", 20),
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "", "gap"]), st.integers(1, 25)),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.integers(1, 150), max_size=3, unique=True),
)
def test_pages_may_end_anywhere(parts: list[tuple[str, int]], cuts: list[int]) -> None:
    """No pod comes back after another: that it shared before a page ended is not seen in that."""
    series, at, pods = list[Series](), 0, [""]
    for name, minutes in parts:
        if name != "gap":
            if name and not pods[-1].startswith(name):
                pods.append(f"{name}{len(pods)}")
            labels = {**JOB, "pod": pods[-1]} if name else {}
            series += rows(
                range(at, at + minutes), 0.5 if name else 0.0, labels, 9000 if name else 0
            )
        at += minutes
    whole = _minutes(found(series, at)) if series else {}
    inside = sorted(cut for cut in cuts if cut < at)
    assert (_minutes(found(series, at, cuts=inside)) if series else {}) == whole


def _minutes(segments: Sequence[Segment]) -> dict[str, float]:
    held = Counter[str]()
    for one in segments:
        if one.owner:
            held[one.owner.name] += round((one.end_s - one.begin_s) / STEP_S)
    return dict(held)


def test_watched_jobs_are_launched_by_their_user_once_they_have_files(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    launch = "advisor launch a-1 b-2 --split 30/100"

    def said(user: str) -> str:
        jobs = [Workload(user, f"{name} (17)") for name in ("a-1", "b-2")]
        return _launch_here(jobs, (30.0, 100.0), tmp_path)

    assert said(me) == f"advisor watch --for 120 && {launch}"
    assert said("bob") == f"as bob: advisor watch --for 120 && {launch}"
    for name in ("a-1", "b-2"):
        (tmp_path / f"{name}.yaml").write_text("command: [sleep, '1']\n")
    assert said(me) == said("") == launch


@pytest.mark.parametrize(
    ("names", "command"),
    [
        (
            ("job 4711", "job 4712"),
            "sacct -XnPj 4711,4712 -o submitline | sort -u"
            " | sed 's/ / --comment=advisor:job=auto /'",
        ),
        (
            ("web", "train"),
            "pods of web: advisor.dev/job: web, advisor.dev/with: train; "
            "pods of train: advisor.dev/job: train, advisor.dev/with: web",
        ),
        (("GPU-1 #2", "web"), "advisor watch"),
    ],
)
def test_a_pair_is_asked_for_as_its_scheduler_has_it(names: Sequence[str], command: str) -> None:
    assert pairing_labels([Workload("", name) for name in names]) == command
