"""Splits: their text, what is refused, candidates, ties, and memory."""

from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from advisor.core.gpu import (
    EQUAL,
    EXCLUSIVE,
    MEMORY_PART,
    PRIORITY,
    TIME_SLICED,
    UNCAPPED,
    MemoryFit,
    Split,
    Vendor,
    best_within_tie,
    fine_splits,
    grantable,
    parse_split,
    quantum,
    split_environments,
    split_of_units,
    split_shares,
    units_for_share,
    without_limits,
)
from advisor.errors import InputError

shares = st.integers(1, 1000).map(lambda tenths: tenths / 10)
limited = st.lists(shares, min_size=2, max_size=5).map(lambda found: Split(tuple(found)))
splits = limited | st.sampled_from([UNCAPPED, TIME_SLICED, EXCLUSIVE])


@given(splits)
def test_text_is_read_as_it_was_written(split: Split) -> None:
    read = parse_split(str(split))
    assert str(read) == str(split) or read.sharing == "uncapped"
    assert read.shares == split.shares


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("30/70", Split((30.0, 70.0))),
        ("20/30/50", Split((20.0, 30.0, 50.0))),
        ("12.5 / 87.5", Split((12.5, 87.5))),
        ("100/100", UNCAPPED),
        ("100/100/100", without_limits("uncapped", 3)),
        ("100/50", Split((100.0, 50.0))),
        ("uncapped", UNCAPPED),
        ("time-sliced", TIME_SLICED),
        ("exclusive", EXCLUSIVE),
    ],
)
def test_texts(text: str, split: Split) -> None:
    assert parse_split(text) == split


@pytest.mark.parametrize("text", ["0/100", "50/0", "50/101", "0/0"])
def test_shares_that_the_driver_takes_as_no_limit(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_split(text)
    assert str(refused.value) == (
        f"the split {text!r} is not possible. the driver takes 0 and percentages above 100 as no "
        "limit at all. give shares above 0 and at most 100 %."
    )


@pytest.mark.parametrize(
    "text",
    ["time sliced", "", "50", "30:70", "30/", "/70", "a/b", "50/nan", "50/inf", "-1/50", "1e1/90",
     "50%/50%", "low/100", "100:LOW/50"],
)  # fmt: skip
def test_what_is_no_split(text: str) -> None:
    near = "the nearest is time-sliced. " if text == "time sliced" else ""
    with pytest.raises(InputError) as refused:
        parse_split(text)
    assert str(refused.value) == (
        f"{text!r} is not a split. {near}"
        "write percentages such as 30/70 or 100:low/50, or uncapped, time-sliced or exclusive."
    )


@pytest.mark.parametrize("found", [(), (0.0,), (0.0, 50.0), (50.0, float("nan"))])
def test_impossible_splits(found: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=r"not possible|no limit"):
        Split(found)


SIZES: list[tuple[int, Vendor]] = [
    *((units, "nvidia") for units in (80, 108, 131, 132, 133, 142, 188)),
    *((units, "amd") for units in (38, 104, 110, 228, 304)),
]


@pytest.mark.parametrize(("units_total", "vendor"), SIZES)
def test_fine_splits_are_all_that_leave_no_unit_over(units_total: int, vendor: Vendor) -> None:
    """Each count that can be granted stands once with what is left, but for a half quantum."""
    step = quantum(units_total, vendor)
    together = units_total // step * step
    found = [
        tuple(units_for_share(share, units_total, vendor) for share in split.shares)
        for split in fine_splits(units_total, vendor)
    ]
    assert all(split.is_limited for split in fine_splits(units_total, vendor))
    possible = [units for units in grantable(units_total, vendor) if units % step == 0]
    assert found == [(u, together - u) for u in possible if together - u in possible]
    assert found[0][0] == possible[0]


def test_counts_that_are_no_split() -> None:
    assert split_of_units((12, 118), 132, "nvidia") == Split((10.0, 90.0))
    with pytest.raises(InputError, match="13 of 132 SMs cannot be granted"):
        split_of_units((13, 119), 132, "nvidia")


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0, 0.5))
def test_best_within_a_tie(values: list[float], tie: float) -> None:
    found = best_within_tie(values, lambda value: value, tie, lambda value, worth: worth)
    assert found == min(value for value in values if value >= max(values) * (1 - tie))


@pytest.mark.parametrize(
    ("values", "tie", "text"),
    [
        ([], 0.0, "there is no split to choose from."),
        *(
            ([1.0], tie, f"a tie of {tie} is not possible. give 0 up to below 1.")
            for tie in (1.0, 1.5, -0.1, float("nan"))
        ),
    ],
)
def test_nothing_to_choose_from(values: list[float], tie: float, text: str) -> None:
    with pytest.raises(InputError) as refused:
        best_within_tie(values, float, tie, lambda value, _: value)
    assert str(refused.value) == text


def test_environments_without_limits() -> None:
    assert split_environments(UNCAPPED, None, "amd") == ({}, {})
    assert [share.upper for share in split_shares(EQUAL)] == [False, True]
    assert [share.upper for share in split_shares(Split((20, 30, 50)))] == [False, False, True]


def test_environments_of_limits() -> None:
    split = Split((30.0, 50.0))
    assert split_environments(split, None, "nvidia") == (
        {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"},
        {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"},
    )
    masks = [env["HSA_CU_MASK"] for env in split_environments(split, 100, "amd")]
    assert masks == ["0:0-29", "0:50-99"]
    with pytest.raises(InputError, match="the number of CUs of the GPU is not known"):
        split_environments(split, None, "amd")


def test_masks_of_three_jobs_are_refused_where_they_would_overlap() -> None:
    """Two of 20/30/50 begin at the same CU. MPS counts for itself, and no limit needs no mask."""
    three = Split((20.0, 30.0, 50.0))
    with pytest.raises(InputError, match="20/30/50 is not possible on an AMD GPU"):
        split_environments(three, 304, "amd")
    assert len(split_environments(three, 132, "nvidia")) == 3
    assert split_environments(without_limits("uncapped", 3), 304, "amd") == ({}, {}, {})
    two = split_environments(Split((100.0, 25.0, 50.0, 100.0)), 304, "amd")
    masks = [env.get("HSA_CU_MASK") for env in two]
    assert masks == [None, "0:0-79", "0:152-303", None]


@given(st.lists(st.tuples(shares, st.booleans()), min_size=2, max_size=7), st.randoms())
def test_priority_is_in_the_text_and_in_the_environment_of_its_job(
    seats: list[tuple[float, bool]], chance: Random
) -> None:
    """What is written is read again, and in another order of the jobs it stays with its job."""
    low = tuple(n for n, (_, is_low) in enumerate(seats) if is_low)
    assume(len(low) < len(seats))
    written = "/".join(f"{share:g}{':low' * is_low}" for share, is_low in seats)
    split = parse_split(written, len(seats))
    assert split.below_normal == low
    assert parse_split(str(split), len(seats)) == split
    variables = split_environments(split, 132, "nvidia")
    assert tuple(n for n, env in enumerate(variables) if env.get(PRIORITY) == "1") == low
    order = chance.sample(range(len(seats)), len(seats))
    moved = split.ordered(order)
    assert moved.seats == tuple(split.seats[n] for n in order)
    assert (moved.below_normal == ()) == (low == ())


def test_priority_below_normal_is_of_some_jobs_under_mps() -> None:
    with pytest.raises(InputError, match="all jobs below normal priority wait for each other"):
        parse_split("100:low/100:low")
    with pytest.raises(InputError, match="not possible on an AMD GPU"):
        split_environments(parse_split("100:low/100"), 304, "amd")


needs = st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=4).map(tuple)


@given(needs, st.none() | st.floats(1, 1e6))
def test_memory(needs_mib: tuple[float | None, ...], card_mib: float | None) -> None:
    found = MemoryFit(needs_mib, card_mib)
    known = sum(need for need in needs_mib if need is not None)
    assert found.is_too_much == (card_mib is not None and known > MEMORY_PART * card_mib)
    if card_mib is None or None in needs_mib:
        assert found.fits is None
    else:
        assert found.fits is not found.is_too_much
    for job, need in enumerate(needs_mib):
        limit_mib = found.limit_mib(job)
        assert (limit_mib is None) == (need is None)
        if limit_mib and need is not None:
            assert limit_mib >= need + 512
            # Beside the needs of the others, it fits into the card where all do.
            assert limit_mib <= max(1.1 * need + 513, (found.most_mib or 0) - known + need + 1)
            assert need <= (found.limit_mib(job, 0) or 0) <= limit_mib


@pytest.mark.parametrize(
    ("bounds_mib", "by"),
    [((), None), ((67_488,), None), ((67_489,), 0), ((None, 62_000), None), ((1, 62_001), 1)],
)
def test_memory_beside_those_that_run(bounds_mib: tuple[float | None, ...], by: int | None) -> None:
    found = MemoryFit((10_000, 5_000, None, 20_000), 100_000)
    assert found.crowded_by(bounds_mib) == by
    assert MemoryFit(found.needs_mib, None).crowded_by(bounds_mib) is None
