"""Counts of units at which results are right: never an unsafe one, and always the nearest."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unsafe_counts import SAFE_132, UNSAFE_132, checked_132, checked_with

from advisor.core.gpu import EQUAL, NINE, Split, fine_splits, grantable, units_for_percent
from advisor.errors import StoreError, UnsafeCountError
from advisor.formats.wire import write
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
    parse_check,
    safe_counts,
    safe_solo_shares,
    safe_splits,
    unchecked_texts,
    wrong_elsewhere,
)
from advisor_data import known as count_checks
from advisor_data.known import known_checks

KNOWN = Safety(units_total=132, host=checked_132())


totals = st.integers(40, 100).map(lambda half: 2 * half)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, int], int, Safety, Safety]:
    total = draw(totals)
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
    two = checked_with(132, frozenset(grantable(132)) - {30, 100})
    safety = Safety(units_total=132, host=two)
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
    found = safe_counts(wanted, total, [a, b], mirrored=mirrored)
    if found is None:
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
    all_but_small = checked_with(132, frozenset(grantable(132)) - {8})
    safety = Safety(units_total=132, host=all_but_small)
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
    one = Safety(units_total=132, host=checked_with(132, frozenset({92})))
    assert moved_text(TEN, one) == (
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
    again = parse_check(write(check).encode())
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
        parse_check(text.encode())


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
    assert known_checks(home) == []
    bundled = replace(CHECK, gpu_uuid="GPU-2")
    (package / "bundled/checks/test.json").write_text(write(bundled))
    assert keep_check(CHECK, home) == home / "checks/test-gpu-80gb.json"
    assert known_checks(home) == [CHECK, bundled]


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
