"""Counts of units at which results are right: never an unsafe one, and always the nearest."""

import dataclasses
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from launched_pairs import launched
from reading import some
from simple_pairs import pair, solo
from unsafe_counts import SAFE_132, UNSAFE_132, checked_132, checked_with

from advisor.core.gpu import EQUAL, NINE, Split, fine_splits, grantable, units_for_percent
from advisor.core.records import (
    BACKLOG,
    DEGENERATE,
    DOUBTFUL,
    SLOW_ALONE,
    UNREAD,
    PairPoint,
    Record,
    SoloPoint,
    is_catching_up,
)
from advisor.errors import StoreError, UnsafeCountError
from advisor.formats.wire import write
from advisor.predict.profiles import make_profiles
from advisor.validity.points import (
    FASTEST,
    LARGEST_DROP,
    SAME_ARITHMETIC,
    SAME_CLOCK,
    energy_above_j,
    expected_energy_j,
    undisputed,
    with_flags,
    with_pair_flags,
    with_solo_flags,
)
from advisor.validity.safe_counts import (
    CHECKS,
    CheckedCounts,
    Safety,
    avoided_texts,
    check_for,
    check_share,
    check_split,
    keep_check,
    moved_text,
    safe_counts,
    safe_solo_shares,
    safe_splits,
    unchecked_texts,
    wrong_elsewhere,
)
from advisor_data import bundled as count_checks
from advisor_data.bundled import (
    all_checks,
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)

KNOWN = Safety(units_total=132, host=checked_132())


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, int], int, Safety, Safety]:
    total = draw(st.integers(40, 100).map(lambda half: 2 * half))
    even = st.integers(4, total // 2).map(lambda half: 2 * half)
    counts = st.frozensets(even)
    host = draw(st.none() | counts.map(lambda unsafe: checked_with(total, unsafe)))
    a, b = (
        Safety(units_total=total, host=host, right=draw(counts), wrong=draw(counts)) for _ in "ab"
    )
    return (draw(even), draw(even)), total, a, b


def test_a_count_that_was_never_checked_is_allowed_and_said_to_be() -> None:
    host = checked_with(132, frozenset({92}), checked=frozenset({66, 92}))
    safety = Safety(units_total=132, host=host, right=frozenset({12}))
    assert 68 not in safety.unsafe
    assert [units for units in (12, 66, 68, 92) if safety.is_unchecked(units)] == [68]


def test_without_any_check_every_count_is_unchecked_but_those_of_own_results() -> None:
    safety = Safety(units_total=132, right=frozenset({12}), wrong=frozenset({14}))
    assert [units for units in (12, 14, 16, 132) if safety.is_unchecked(units)] == [16, 132]


@pytest.mark.parametrize(
    ("units", "nearest", "around"),
    [
        (66, 66, (66, 70)),
        (26, 22, (22, 30)),
        (92, 70, (70, 118)),
        (104, 118, (70, 118)),
        (132, 132, (132,)),
        (2, 8, (8,)),
    ],
)
def test_nearest_safe_counts(units: int, nearest: int, around: tuple[int, ...]) -> None:
    """Of two equally near ones the smaller."""
    assert (KNOWN.nearest(units), KNOWN.around(units)) == (nearest, around)


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_job_that_was_to_have_more_gets_more(mirrored: bool) -> None:
    safety = Safety(units_total=132, host=checked_with(132, frozenset(grantable(132)) - {30, 100}))
    assert safe_counts((102, 110), 132, [safety, safety], mirrored=mirrored) == (30, 100)
    assert safe_counts((110, 102), 132, [safety, safety], mirrored=mirrored) == (100, 30)


@given(
    st.frozensets(st.sampled_from(sorted(grantable(60)))),
    st.lists(st.sampled_from(sorted(grantable(60))), min_size=2, max_size=3),
    st.booleans(),
)
def test_jobs_of_which_the_same_is_known_keep_their_order(
    unsafe: frozenset[int], wanted: list[int], mirrored: bool
) -> None:
    safety = Safety(units_total=60, host=checked_with(60, unsafe))
    found = safe_counts(tuple(wanted), 60, [safety] * len(wanted), mirrored=mirrored)
    ordered = sorted(zip(wanted, found or (), strict=False))
    for (less, fewer), (more, units) in itertools.combinations(ordered, 2):
        assert less == more or fewer <= units


@given(cases(), st.booleans())
def test_pairs_are_allowed_fit_and_are_the_nearest(
    case: tuple[tuple[int, int], int, Safety, Safety], mirrored: bool
) -> None:
    wanted, total, a, b = case
    pairs = [(x, y) for x in grantable(total) for y in grantable(total) if x + y <= total]
    possible = [(x, y) for x, y in pairs if x not in a.unsafe and y not in b.unsafe]
    if (found := safe_counts(wanted, total, [a, b], mirrored=mirrored)) is None:
        assert not possible
        return
    assert found in possible

    def apart(pair: tuple[int, ...]) -> int:
        return abs(pair[0] - wanted[0]) + abs(pair[1] - wanted[1])

    assert apart(found) == min(map(apart, possible))


@given(cases(), st.booleans())
def test_swapping_the_jobs_swaps_the_pair(
    case: tuple[tuple[int, int], int, Safety, Safety], mirrored: bool
) -> None:
    wanted, total, a, b = case
    there = safe_counts(wanted, total, [a, b], mirrored=mirrored)
    back = safe_counts((wanted[1], wanted[0]), total, [b, a], mirrored=not mirrored)
    assert there == (back and back[::-1])


@given(st.lists(st.integers(4, 40).map(lambda half: 2 * half), min_size=3, max_size=3))
def test_counts_of_three_jobs(wanted: list[int]) -> None:
    found = safe_counts(tuple(wanted), 132, [KNOWN] * 3)
    assert found
    assert sum(found) <= 132
    assert set(found) <= SAFE_132
    if set(wanted) <= SAFE_132 and sum(wanted) <= 132:
        assert found == tuple(wanted)


TEN = [float(share) for share in range(10, 101, 10)]


LIBRARIES = "GPU libraries compute wrong results (advisor check)"


ANYWAY = "or ask for it all the same: --allow-unsafe, over HTTP allow_unsafe"


def test_nine_splits_in_percent() -> None:
    found = safe_splits(NINE, [KNOWN, KNOWN])
    assert tuple(split and split.shares for split in found) == (
        (10, 90), (11, 90), (26, 54), (47, 54), (50, 50), (54, 47), (54, 26), (90, 11), (90, 10)
    )  # fmt: skip
    for split in found:
        assert split
        units = [units_for_percent(share, 132) for share in split.shares]
        assert not UNSAFE_132.intersection(units)
        assert sum(units) <= 132


def test_the_whole_gpu_stays_whatever_is_known() -> None:
    safety = Safety(units_total=132, host=checked_with(132, frozenset(grantable(132)) - {8}))
    assert safe_solo_shares(TEN, safety) == (7.0, 100.0)


@pytest.mark.parametrize("safety", [Safety(), Safety(units_total=132), Safety(host=checked_132())])
def test_nothing_known_changes_nothing(safety: Safety) -> None:
    odd = [Split((33.3, 66.6)), Split((1.0, 99.0)), Split((70.0, 70.0))]
    assert safe_splits(odd, [safety, safety]) == tuple(odd)
    assert safe_solo_shares([33.3, 0.5, 33.4], safety) == (33.3, 0.5, 33.4)
    assert not moved_text(TEN, safety)
    assert not list(avoided_texts(NINE, ("a", "b"), [safety, safety]))
    check_split(Split((70, 30)), [safety, safety])


@given(st.frozensets(st.sampled_from(sorted(grantable(132)))), st.data())
def test_no_share_is_at_an_unsafe_count(unsafe: frozenset[int], data: st.DataObject) -> None:
    """Whatever was checked; only the whole GPU of a job alone may be."""
    safety = Safety(units_total=132, host=checked_with(132, unsafe))
    percents = st.floats(0.5, 100)
    splits = st.builds(Split, st.tuples(percents, percents))
    wanted = data.draw(st.lists(splits, min_size=1, max_size=3))
    for split in safe_splits(wanted, [safety, Safety(units_total=132)]):
        assert split is None or units_for_percent(split.shares[0], 132) not in unsafe
    alone = safe_solo_shares([split.shares[0] for split in wanted], safety)
    assert not {units_for_percent(share, 132) for share in alone} & (unsafe - {132})


def test_a_refusal_says_what_was_wrong_and_what_is_near() -> None:
    with pytest.raises(UnsafeCountError) as refused:
        check_split(Split((70, 30)), [KNOWN, KNOWN])
    assert str(refused.value) == (
        f"70 % is 92 and 30 % is 38 of 132 SMs, at which {LIBRARIES}. "
        "wrong were torch.mm bf16 and torch.bmm fp16. "
        "take 54/26 (70+34 SMs), the nearest safe split, "
        "or ask for it all the same: --allow-unsafe, over HTTP allow_unsafe."
    )


def test_a_refusal_by_own_results_says_so() -> None:
    own = Safety(units_total=132, wrong=frozenset({66}))
    with pytest.raises(UnsafeCountError) as refused:
        check_split(EQUAL, [own, Safety(units_total=132)])
    assert refused.value.what == "50 % is 66 of 132 SMs, at which the job's own results were wrong"
    assert not refused.value.why
    checked = Safety(units_total=132, host=checked_132(), wrong=frozenset({66}))
    with pytest.raises(UnsafeCountError) as refused:
        check_split(EQUAL, [checked, KNOWN])
    assert not refused.value.why
    check_split(Split((50, 40)), [Safety(units_total=132), own])


def test_a_share_alone_is_refused_with_the_nearest_two_counts() -> None:
    with pytest.raises(UnsafeCountError) as refused:
        check_share(70, KNOWN)
    assert str(refused.value) == (
        f"70 % is 92 of 132 SMs, at which {LIBRARIES}. wrong were torch.mm bf16 and torch.bmm "
        f"fp16. the nearest safe counts are 70 and 118 SMs (--units), {ANYWAY}."
    )
    check_share(50, KNOWN)


def test_where_nothing_is_safe_nothing_is_offered() -> None:
    nothing = Safety(units_total=132, host=checked_with(132, frozenset(grantable(132))))
    assert safe_splits([EQUAL], [nothing, nothing]) == (None,)
    with pytest.raises(UnsafeCountError) as split:
        check_split(EQUAL, [nothing, nothing])
    with pytest.raises(UnsafeCountError) as share:
        check_share(50, nothing)
    assert split.value.fix == share.value.fix == ""


def test_causes_of_both_jobs_are_named() -> None:
    own = Safety(units_total=132, host=checked_132(), wrong=frozenset({12}))
    with pytest.raises(UnsafeCountError) as refused:
        check_split(Split((70, 10)), [KNOWN, own])
    assert refused.value.what == (
        f"70 % is 92 of 132 SMs, at which {LIBRARIES}; "
        "10 % is 12 of 132 SMs, at which the job's own results were wrong"
    )
    assert moved_text([10.0, 70.0], own) == (
        "10 and 70 % are 12 and 92 of 132 SMs, at which the job's own results were wrong or "
        f"{LIBRARIES}; measured at 10 and 70 SMs instead"
    )


@pytest.mark.parametrize(
    ("at_38", "at_92", "text"),
    [
        ("a", "b", "a and b"),
        ("abc", "abc", "a, b and c"),
        ("ab", "bcd", "a, b, c and 1 more"),
        ("abc", "cdefg", "a, b, c and 4 more"),
    ],
)
def test_three_wrong_operations_are_named(at_38: str, at_92: str, text: str) -> None:
    host = replace(checked_132(), wrong={38: tuple(at_38), 92: tuple(at_92)})
    safety = Safety(units_total=132, host=host)
    with pytest.raises(UnsafeCountError) as refused:
        check_split(Split((30, 70)), [safety, safety])
    assert refused.value.why == f"wrong were {text}"


def test_of_mirror_images_the_caller_decides() -> None:
    safety = Safety(units_total=132, host=checked_132(), wrong=frozenset({64, 66}))
    pair = [safety, safety]
    assert safe_splits([EQUAL], pair) == (Split((47, 54)),)
    assert safe_splits([EQUAL], pair, mirrored=True) == (Split((54, 47)),)
    for mirrored, near in (({}, "47/54 (62+70"), ({"mirrored": True}, "54/47 (70+62")):
        with pytest.raises(UnsafeCountError) as refused:
            check_split(EQUAL, pair, **mirrored)
        assert refused.value.fix.startswith(f"take {near} SMs), the nearest safe split, or")


def test_what_is_moved_is_said_once() -> None:
    assert moved_text(TEN, Safety(units_total=132, host=checked_with(132, frozenset({92})))) == (
        f"70 % is 92 of 132 SMs, at which {LIBRARIES}; measured at 90 SMs instead"
    )
    assert moved_text(TEN, KNOWN) == (
        "20, 30, 40, 60, 70 and 80 % are 26, 38, 52, 78, 92 and 104 of 132 SMs, at which "
        f"{LIBRARIES}; measured at 22, 34, 62 and 70 SMs instead"
    )


def test_avoided_counts_in_a_row_are_a_range() -> None:
    unsafe = frozenset(range(40, 61, 2))
    own = Safety(units_total=132, host=checked_with(132, unsafe), wrong=frozenset({70, 72, 74}))
    fine = fine_splits(132, "nvidia")
    assert list(avoided_texts(fine, ("a", "b"), [own, Safety(units_total=132)])) == [
        f"not used: 40 to 60 of 132 SMs, at which {LIBRARIES}",
        "not used for a: 70 to 74 of 132 SMs, at which its own results were wrong",
    ]
    cus = Safety(units_total=304, vendor="amd", wrong=frozenset({32, 64, 96}))
    many = Safety(units_total=304, vendor="amd", wrong=frozenset(range(104, 121, 8)))
    assert list(avoided_texts(fine_splits(304, "amd"), ("a", "b"), [cus, many])) == [
        "not used for a: 32, 64 and 96 of 304 CUs, at which its own results were wrong",
        "not used for b: 104 to 120 of 304 CUs, at which its own results were wrong",
    ]


def test_the_counts_of_an_amd_gpu() -> None:
    """30 % of 100 CUs are 30, where MPS would grant 30 of 100 SMs in pairs and 33 % are 33."""
    own = Safety(units_total=100, vendor="amd", wrong=frozenset({33}))
    free = Safety(units_total=100, vendor="amd")
    asked = Split((33, 67))
    assert safe_splits([asked], [own, free]) == (Split((32, 67)),)
    assert safe_solo_shares([7, 33, 100], own) == (7, 32, 100)
    with pytest.raises(UnsafeCountError) as refused:
        check_split(asked, [own, free])
    assert refused.value.what.startswith("33 % is 33 of 100 CUs, at which the job's own")
    assert refused.value.fix == f"take 32/67 (32+67 CUs), the nearest safe split, {ANYWAY}"
    with pytest.raises(UnsafeCountError, match=r"the nearest safe counts are 32 and 34 CUs \(--"):
        check_share(33, own)
    rows = Safety(units_total=304, vendor="amd", wrong=frozenset({152}))
    assert safe_solo_shares([50.0, 100.0], rows) == (pytest.approx(100 * 144 / 304), 100)
    assert moved_text([50.0], rows).endswith("measured at 144 CUs instead")
    few = checked_with(100, frozenset(), checked=frozenset({66}), gpu_model="AMD Instinct MI210")
    unchecked = Safety(units_total=100, vendor="amd", host=few)
    assert list(unchecked_texts(Split((33, 66)), ("a", "b"), [unchecked, unchecked])) == [
        "at 33 CUs, which a gets, no result was checked: advisor check"
    ]


def test_counts_that_nobody_checked_are_named() -> None:
    few = checked_with(132, frozenset({92}), checked=frozenset({66, 92}))
    host = Safety(units_total=132, host=few)
    assert list(unchecked_texts(Split((50, 40)), ("a", "b"), [host, host])) == [
        "at 52 SMs, which b gets, no result was checked: advisor check"
    ]
    assert not list(
        unchecked_texts(Split((50, 40)), ("a", "b"), [Safety(), Safety(units_total=132)])
    )


@pytest.mark.parametrize("first", [True, False])
def test_what_is_known_of_one_job_holds_beside_one_of_which_nothing_is(first: bool) -> None:
    """A profile without the number of SMs must not let its neighbour run at an unsafe count."""
    pair = (KNOWN, Safety()) if first else (Safety(), KNOWN)
    asked = Split((70.0, 20.0) if first else (20.0, 70.0))
    (found,) = safe_splits([asked], pair)
    assert found
    assert units_for_percent(found.shares[0 if first else 1], 132) not in UNSAFE_132
    assert safe_splits([EQUAL], pair) == (EQUAL,)
    with pytest.raises(UnsafeCountError, match=r"70 % is 92 of 132 SMs.*the nearest safe split"):
        check_split(asked, pair)
    assert list(avoided_texts([asked], ("a", "b"), pair)) == [
        f"not used: 92 of 132 SMs, at which {LIBRARIES}"
    ]
    few = Safety(units_total=132, host=checked_with(132, frozenset({8}), checked=frozenset({8})))
    unchecked = (few, Safety()) if first else (Safety(), few)
    name = "a" if first else "b"
    assert list(unchecked_texts(asked, ("a", "b"), unchecked)) == [
        f"at 92 SMs, which {name} gets, no result was checked: advisor check"
    ]


OPERATIONS = ("matmul", "convolution", "sort")


CHECK = CheckedCounts(
    gpu_model="Test GPU 80GB",
    gpu_uuid="GPU-1",
    units_total=132,
    driver="580.1",
    libraries={"torch": "2.11.0", "cublas": "130100"},
    checked=(132, 8, 92, 66),
    wrong={92: ("matmul", "sort"), 66: ("matmul",)},
    operations=OPERATIONS,
    checked_at="2026-11-22T01:02:03.000000Z",
    seconds=12.5,
)


@st.composite
def checks(draw: st.DrawFn) -> CheckedCounts:
    checked = draw(st.lists(st.integers(1, 132), unique=True))
    names = st.lists(st.sampled_from(OPERATIONS), min_size=1, unique=True).map(tuple)
    wrong = {count: draw(names) for count in checked if draw(st.booleans())}
    return replace(CHECK, checked=tuple(checked), wrong=wrong)


def test_what_is_written() -> None:
    assert json.loads(write(CHECK)) == {
        "gpu_model": "Test GPU 80GB",
        "gpu_uuid": "GPU-1",
        "units_total": 132,
        "driver": "580.1",
        "libraries": {"torch": "2.11.0", "cublas": "130100"},
        "checked": [132, 8, 92, 66],
        "wrong": {"92": ["matmul", "sort"], "66": ["matmul"]},
        "operations": ["matmul", "convolution", "sort"],
        "checked_at": "2026-11-22T01:02:03.000000Z",
        "seconds": 12.5,
    }


@given(checks())
def test_what_is_written_is_read(check: CheckedCounts) -> None:
    again = CHECKS.parse(write(check).encode())
    assert (again, sorted((*again.safe, *again.unsafe))) == (check, sorted(check.checked))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"driver": None}, "driver: it should be a valid string"),
        ({"colour": "red"}, "colour: there is no such key"),
        ({"checked": [8, 134]}, "checked: no 134 of 132 SMs"),
        ({"checked": [0]}, "checked: no 0 of 132 SMs"),
        ({"wrong": {"40": ["matmul"]}}, "wrong.40: 40 SMs were not checked"),
        ({"wrong": {"92": []}}, "wrong.92: not one or more of the operations"),
        ({"wrong": {"92": ["fft"]}}, "wrong.92: not one or more of the operations"),
        ({"wrong": {"many": ["sort"]}}, "wrong.many.*it should be a valid integer"),
        ({"seconds": "long"}, "seconds: it should be a valid number"),
    ],
)
def test_faults_are_named(change: dict[str, Any], words: str) -> None:
    text = json.dumps({**json.loads(write(CHECK)), **change})
    with pytest.raises(ValueError, match=words):
        CHECKS.parse(text.encode())


def test_what_changed_is_said() -> None:
    assert CHECK.differs_from("580.1", CHECK.libraries) == ""
    assert (CHECK.differs_from("580.1", {}), CHECK.differs_from("580.1", {"jax": "1"})) == ("", "")
    assert CHECK.differs_from("590.2", {"torch": "2.11.0", "cublas": "130200"}) == (
        "driver 580.1 then, 590.2 now, cublas 130100 then, 130200 now"
    )


def test_own_check_comes_before_others_and_they_fill_its_gaps() -> None:
    own = replace(CHECK, checked=(66, 132), wrong={}, driver="590")
    known = check_for(CHECK.gpu_model, [replace(CHECK, gpu_model="Another"), own, CHECK])
    assert known is not None
    assert (known.safe, known.unsafe, known.driver) == ((8, 66, 132), (92,), "590")
    assert check_for("Nobody's GPU", [own, CHECK]) is None


def test_stored_comes_before_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, home = tmp_path / "package", tmp_path / "home"
    (package / "bundled/checks").mkdir(parents=True)
    monkeypatch.setattr(count_checks.resources, "files", lambda _: package)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert all_checks(home) == []
    bundled = replace(CHECK, gpu_uuid="GPU-2")
    (package / "bundled/checks/test.json").write_text(write(bundled))
    assert keep_check(CHECK, home) == home / "checks/test-gpu-80gb.json"
    assert all_checks(home) == [CHECK, bundled]


def test_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    path = keep_check(CHECK, tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError) as caught:
        CHECKS.read(tmp_path)
    assert str(path) in caught.value.what
    assert caught.value.fix == "remove it and run `advisor check` again"


def test_what_was_wrong_on_a_like_model_counts_until_it_is_tried_here() -> None:
    """The same libraries take the same kernels for the same number of SMs."""
    more = ("conv", *CHECK.operations)
    other = replace(CHECK, gpu_model="Another", operations=more, wrong={8: ("conv",)})
    assert wrong_elsewhere(CHECK.gpu_model, [CHECK, other]) == {8: ("conv on Another",)}
    assert wrong_elsewhere(CHECK.gpu_model, [replace(CHECK, operations=more), CHECK, other]) == {}
    assert wrong_elsewhere(CHECK.gpu_model, [CHECK, replace(other, libraries={})]) == {}
    assert wrong_elsewhere(CHECK.gpu_model, [CHECK, replace(other, units_total=60)]) == {}
    assert wrong_elsewhere("Nobody's GPU", [CHECK, other]) == {}


# The flag for points whose power betrays wrong results.


IDLE_W = 75.0


def at(share: float, energy_j: float = 2.0, /, **fields: Any) -> SoloPoint:
    """A job that does `share` steps a second, for so many joules above idle each."""
    rate = fields.get("rate", share)
    values: dict[str, Any] = {
        "share_percent": float(share),
        "rate": float(rate),
        "power_w": IDLE_W + energy_j * rate,
        "idle_power_w": IDLE_W,
        "sm_clock_mhz": 1980.0,
        "tensor_active_percent": 0.4 * rate,
    }
    return solo(**{**values, **fields})


def flagged(points: list[SoloPoint]) -> list[float]:
    return [p.share_percent for p in with_solo_flags(points) if DEGENERATE in p.flags]


def test_less_energy_for_the_same_work_is_flagged() -> None:
    points = [at(100), at(10, 3.0), at(80, 1.6), at(50, 2.2)]
    assert flagged(points) == [80]
    assert [p.share_percent for p in with_solo_flags(points)] == [100, 10, 80, 50]


def test_job_of_zeros_is_not_judged_by_a_run_with_other_data() -> None:
    """Zeros honestly draw less: only shares of the same run, so of the same data, are compared."""
    zeros = [at(share, 0.9, run="zeros", input_fingerprint="zeros") for share in (10, 50, 100)]
    random = [at(share, 2.0, run="random", input_fingerprint="random") for share in (10, 50, 100)]
    assert flagged([*zeros, *random]) == []
    assert flagged([*random, *zeros, at(80, 0.7, run="zeros", input_fingerprint="zeros")]) == [80]


def test_a_drop_within_the_error_of_power_is_none() -> None:
    assert flagged([at(50, rate=1.0, power_w=77.0), at(100, rate=1.0, power_w=79.0)]) == []


def test_a_lower_clock_takes_less_honestly() -> None:
    slow = at(50, 1.6, sm_clock_mhz=1980 / (1 + 2 * SAME_CLOCK))
    assert flagged([slow, at(100)]) == []
    assert flagged([dataclasses.replace(slow, sm_clock_mhz=1980.0), at(100)]) == [50]


@pytest.mark.parametrize("pipe", ["tensor", "fp32", "fp64"])
def test_another_kernel_takes_another_energy(pipe: str) -> None:
    """Twice the cycles of a pipe per unit of work: the library chose something else."""
    name = f"{pipe}_active_percent"
    one, other = at(50, 1.6), at(100)
    same = [dataclasses.replace(p, **{name: 0.4 * p.rate}) for p in (one, other)]
    more = 0.4 * one.rate * (1 + 2 * SAME_ARITHMETIC)
    assert flagged(same) == [50]
    assert flagged([dataclasses.replace(same[0], **{name: more}), same[1]]) == []


def test_a_pipe_that_is_hardly_busy_tells_nothing() -> None:
    """0.1 % and 0.6 % of the time are rounding."""
    assert flagged([at(50, 1.6, fp64_active_percent=0.1), at(100, fp64_active_percent=0.6)]) == [50]


def test_a_doubtful_point_is_no_measure() -> None:
    high = at(80, 3.0)
    assert flagged([at(50, 2.0), high, at(100)]) == [50]
    for flag in DOUBTFUL - {DEGENERATE, UNREAD}:
        assert flagged([at(50, 2.0), dataclasses.replace(high, flags=(flag,)), at(100)]) == []
    unread = dataclasses.replace(high, flags=(UNREAD,))
    assert flagged([at(50, 2.0), unread, at(100)]) == [50], "wrong results take less, never more"


@pytest.mark.parametrize("missing", ["power_w", "idle_power_w"])
def test_a_missing_reading_is_no_reason(missing: str) -> None:
    assert flagged([at(50, 1.0, **{missing: None}), at(100)]) == []
    assert flagged([at(50, 1.0), at(100, **{missing: None})]) == []


@pytest.mark.parametrize("field", ["run", "gpu_uuid", "job"])
def test_sweeps_are_judged_by_themselves(field: str) -> None:
    assert flagged([at(50, 1.0), at(100, **{field: "another"})]) == []


def test_one_slow_window_of_a_launch_bound_job_condemns_no_other() -> None:
    bound = {"flags": ("cpu-bound",)}
    slow = at(80, 3.0, **bound)
    points = [at(30, 2.1, **bound), at(50, 2.0, **bound), slow, at(100, 2.0, **bound)]
    assert flagged(points) == []
    assert flagged([*points, at(90, 3.0, **bound)]) == flagged([*points, at(90, 3.0)]) == [30, 50]
    assert flagged([*points[:2], dataclasses.replace(slow, flags=()), points[3]]) == [30, 50]
    assert flagged([*points, slow]) == [], "the same point twice is one"


def waiting(share: float, rate: float, energy_j: float = 0.1, **fields: Any) -> SoloPoint:
    """A job that waits for its host at active idle power, and takes so much for a step itself."""
    power_w = {"power_w": IDLE_W + 45 + energy_j * rate, "active_idle_power_w": IDLE_W + 45}
    return at(share, rate=rate, flags=("cpu-bound",), **{**power_w, **fields})


def test_a_host_that_was_faster_for_one_window_accuses_nobody() -> None:
    sweep = [waiting(10, 74), waiting(26, 111), waiting(50, 77), waiting(90, 96), waiting(100, 62)]
    assert flagged(sweep) == []
    unknown = [dataclasses.replace(point, active_idle_power_w=None) for point in sweep]
    assert flagged(unknown) == [26], "no active idle power: the time counts as work"
    wrong = [waiting(26, 77, 0.5), *(waiting(*of, 1.0) for of in ((50, 77), (90, 96), (100, 62)))]
    assert flagged(wrong) == [26]


def test_a_difference_within_two_standard_errors_accuses_nobody() -> None:
    assert flagged([at(50, 1.6, rate_stderr=2.0), at(100)]) == [50]
    assert flagged([at(50, 1.6, rate_stderr=8.0), at(100)]) == []
    assert flagged([at(50, 1.6), at(100, power_stderr_w=25.0)]) == []


ENERGIES = st.lists(st.floats(0.1, 10), min_size=2, max_size=10)


@given(ENERGIES)
def test_energy_that_falls_with_the_share_is_never_flagged(energies: list[float]) -> None:
    falling = sorted(energies, reverse=True)
    assert flagged([at(10 * n, energy) for n, energy in enumerate(falling, start=1)]) == []


@given(ENERGIES, st.randoms())
def test_every_flag_has_a_reason_and_a_second_look_changes_nothing(
    energies: list[float], random: Any
) -> None:
    points = [at(10 * n, energy) for n, energy in enumerate(energies, start=1)]
    random.shuffle(points)
    once = with_solo_flags(points)
    assert with_solo_flags(once) == once
    for point in once:
        own, expected = energy_above_j(point), expected_energy_j(point, points)
        if DEGENERATE in point.flags:
            assert some(own)[0] < (1 - LARGEST_DROP) * some(expected)[0]


@given(ENERGIES, st.floats(0.01, 100), st.data())
def test_one_outlier_of_a_launch_bound_sweep_flags_itself_at_most(
    energies: list[float], outlier: float, data: Any
) -> None:
    """Wherever it lies and however far off it is."""
    place = data.draw(st.integers(1, len(energies)))
    points = [
        at(10 * n, outlier if n == place else energy, flags=("cpu-bound",))
        for n, energy in enumerate(sorted(energies, reverse=True), start=1)
    ]
    assert set(flagged(points)) <= {10.0 * place}


SWEEP = [at(10, 3.0), at(30, 2.6), at(50, 1.2), at(70, 1.2), at(90), at(100)]


def flags_of(*points: PairPoint) -> list[bool]:
    return [DEGENERATE in p.flags for p in with_pair_flags(points, with_solo_flags(SWEEP))]


def test_a_pair_is_flagged_where_one_of_its_jobs_is() -> None:
    assert flags_of(pair(50, 50), pair(30, 70), pair(90, 10), pair(100, 100, mode="uncapped")) == [
        True, False, False, False,
    ]  # fmt: skip
    other = {"job_1": "0", "job_2": "a"}
    assert flags_of(pair(50, 50, **other), pair(70, 30, **other)) == [True, False]
    assert flags_of(pair(50, 50, gpu_model="Another")) == [False]


def test_between_two_shares_the_worse_one_counts() -> None:
    between = (pair(share, 5) for share in (5, 20, 40, 60, 80, 95))
    assert flags_of(*between) == [False, False, True, True, True, False]


def test_records_of_all_kinds_keep_their_order() -> None:
    records = [pair(50, 10), *SWEEP, pair(90, 10)]
    kept = with_flags(records)
    assert [r.point_id for r in kept] == [r.point_id for r in records]
    assert [DEGENERATE in r.flags for r in kept] == [True, *[False] * 2, *[True] * 2, *[False] * 3]


def test_a_profile_lacks_shares_with_wrong_results() -> None:
    profile = make_profiles(SWEEP)["a", "Card"]
    assert profile.shares.tolist() == [10, 30, 90, 100]
    assert DEGENERATE not in profile.flags
    again = [dataclasses.replace(p, run="again") for p in (at(50, 2.4), at(100))]
    assert make_profiles([*SWEEP, *again])["a", "Card"].shares.tolist() == [10, 30, 50, 90, 100]


def test_other_doubtful_points_stand_where_there_are_no_others() -> None:
    points = [at(50, flags=("counter-mismatch",)), at(100)]
    assert make_profiles(points)["a", "Card"].shares.tolist() == [50, 100]


def test_the_bundled_points_carry_the_flag_already() -> None:
    solos = bundled_solo_points()
    assert with_solo_flags(solos) == solos
    assert with_pair_flags(bundled_pair_points(), solos) == bundled_pair_points()
    assert with_solo_flags(bundled_reference_points()) == bundled_reference_points()


def backlogs(*points: SoloPoint) -> list[float]:
    return [p.share_percent for p in with_solo_flags(points) if BACKLOG in p.flags]


def server(share: float, rate: float, p50_ms: float, p99_ms: float, /, **fields: Any) -> SoloPoint:
    latencies = {"latency_p50_ms": p50_ms, "latency_p99_ms": p99_ms}
    values: dict[str, Any] = {"offered_rate": 60.0, **latencies, **fields}
    return solo(share_percent=share, rate=rate, **values)


def test_more_answers_than_arrive_have_waited_in_a_queue() -> None:
    assert backlogs(server(100, 76.5, 900, 1375)) == [100]
    assert backlogs(server(100, 70, 900, 1375)) == [], "within chance of 300 requests"
    assert backlogs(server(50, 76.5, 5, 20)) == [50], "a burst, or more arrives than is declared"
    assert is_catching_up(76.5, 60, 5, 900)
    assert not is_catching_up(76.5, 60, 5, 5), "nothing waited"


@pytest.mark.parametrize("offered_rate", [60.0, None])
def test_a_tail_on_the_whole_gpu_that_is_far_above_that_at_half_is_a_doubt(
    offered_rate: float | None,
) -> None:
    halves = [server(share, 60, 60, ms) for share, ms in ((20, 2000), (47, 180), (90, 1375))]
    whole = server(100, 60, 60, 1375, offered_rate=offered_rate)
    assert backlogs(*halves, whole) == [100]
    assert backlogs(*halves, replace(whole, latency_p99_ms=260.0)) == []
    assert backlogs(*halves[::2], whole) == [], "nearest to half is the one at 20 %"
    assert backlogs(replace(halves[1], flags=("heat",)), whole) == []


def sweep(*rates: float) -> list[SoloPoint]:
    return [
        solo(share_percent=float(share), rate=rate, power_w=None)
        for share, rate in zip((*range(10, 10 * len(rates), 10), 100), rates, strict=True)
    ]


def slow(points: list[SoloPoint]) -> list[float]:
    return [p.share_percent for p in with_solo_flags(points) if SLOW_ALONE in p.flags]


def test_a_whole_gpu_that_is_slower_than_a_part_of_it_is_flagged() -> None:
    assert slow(sweep(50, 100, 80)) == [100]
    assert slow(sweep(50, 90, 80)) == slow(sweep(50, 70, 80)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"run": "other"},
        {"gpu_uuid": "GPU-other"},
        {"job": "other"},
        *({"flags": (flag,)} for flag in sorted(DOUBTFUL)),
    ],
)
def test_another_sweep_and_a_point_that_failed_a_check_say_nothing(change: dict[str, Any]) -> None:
    fast, whole = sweep(100, 80)
    assert slow([replace(fast, **change), whole]) == []


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=9))
def test_the_bound_of_slow_alone(rates: list[float]) -> None:
    """Flagged is what any share beats by more than two undisturbed runs differ."""
    assert bool(slow(sweep(*rates))) == (max(rates) > FASTEST * rates[-1])


def point(share: float, units: int, results: str | None, flags: tuple[str, ...] = ()) -> SoloPoint:
    return solo(
        share_percent=share, units_granted=units, units_total=132, rate=share, results=results,
        flags=flags,
    )  # fmt: skip


POINTS = [
    point(70, 92, "right"),
    point(50, 66, "wrong", flags=("not-settled",)),
    point(50, 66, "right"),
    point(40, 52, "differ"),
    point(40, 52, "right"),
    point(30, 38, None),
    point(100, 132, "right"),
]


def test_a_profile_knows_its_own_results_before_the_check() -> None:
    (found,) = make_profiles(POINTS).values()
    safety = found.safety(checked_132())
    assert 92 not in safety.unsafe
    assert {38, 52, 66} <= safety.unsafe
    assert found.safety(None).unsafe == {52, 66}


RECORDS: list[Record] = [
    bundled_solo_points({"fft"})[0],
    bundled_pair_points()[0],
    launched([1])[0],
]


KINDS = [type(record).__name__ for record in RECORDS]


@pytest.mark.parametrize("true", RECORDS, ids=KINDS)
@pytest.mark.parametrize("forger", ["a", "z"])
def test_of_unlike_copies_that_of_the_site_itself_counts(true: Record, forger: str) -> None:
    """Of those that others sent none does."""
    same = true.started_at.replace("Z", "+00:00")
    forged = replace(true, written_by=forger, started_at=same, power_w=(true.power_w or 0) * 0.7)
    other = replace(true, started_at="2026-01-02T03:04:05Z")
    assert (undisputed([true, other, forged]), undisputed([forged, true])) == (
        [true, other],
        [true],
    )
    assert undisputed([replace(true, written_by="b"), other, forged]) == [other]


@pytest.mark.parametrize("true", RECORDS, ids=KINDS)
def test_what_is_sent_again_as_it_was_still_counts(true: Record) -> None:
    again = replace(true, written_by="a")
    assert undisputed([true, again]) == [true, again]


def test_what_was_measured_at_one_moment_elsewhere_is_no_copy() -> None:
    true = bundled_solo_points({"fft"})[0]
    others = [replace(true, gpu_uuid="GPU-2", rate=1.0), replace(true, job="b", rate=1.0)]
    assert undisputed([true, *others]) == [true, *others]
