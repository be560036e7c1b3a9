"""Memory of cards, and jobs that do not fit into it together or alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import Physics, profile

from advisor.core.gpu import MEMORY_MIB, check_card_memory, parse_memory_mib
from advisor.decide.limits import Limits, check_jobs_fit, memory_unknown, with_card_memory
from advisor.decide.recommend import recommend
from advisor.decide.recommendation import Request
from advisor.errors import InputError

H200 = "NVIDIA H200"


def test_two_jobs_of_120000_mib_do_not_share_an_h200() -> None:
    large = profile("big", memory_used_mib=120_000.0)
    answer = recommend((large, large), Physics(), Request(default_min_speed=0))
    assert answer.choice.name == "exclusive"
    assert "both need 240000 MiB of memory, 136582 MiB are there" in "\n".join(answer.reasons)
    # Alone on the card neither breaks anything.
    assert answer.choice.violations == ()


def test_what_is_not_known_is_said() -> None:
    """Of a card that is not in the list, and of a job that was measured without its memory."""
    dark = profile("dark", memory_used_mib=None)
    answer = recommend((dark, profile("b")), Physics())
    assert "the memory of dark is not known, and taken as none" in answer.warnings
    assert memory_unknown((profile("a"), profile("b")), 143771) == ()


def test_what_is_given_goes_before_what_is_known() -> None:
    """A card of the same name may have less, as in a slice of it."""
    assert with_card_memory(Limits(), H200).memory_mib == 143771
    assert with_card_memory(Limits(memory_mib=20_000), H200).memory_mib == 20_000
    assert with_card_memory(Limits(), "Card 5000").memory_mib is None


def test_a_card_too_small_for_one_job_alone_is_refused() -> None:
    """Not answered with "one after the other", which would not run either."""
    large = profile("big", memory_used_mib=60_000.0)
    with pytest.raises(InputError, match="big needs 60000 MiB of memory, the card has 40960"):
        recommend((large, profile("b")), Physics(), Request(memory_mib=40_960))
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
        Limits(memory_mib=memory_mib)


@given(st.floats(1025, 1e6))
def test_every_size_that_is_printed_is_read_again(memory_mib: float) -> None:
    assert parse_memory_mib(f"{memory_mib:f}") == pytest.approx(memory_mib)
    assert parse_memory_mib(f"{memory_mib / 1024:f}GiB") == pytest.approx(memory_mib, abs=0.01)


def test_the_smallest_and_the_largest_card() -> None:
    assert parse_memory_mib("1GiB") == 1024
    assert parse_memory_mib("1024 GiB") == 2**20
    for memory_mib in (1023.9, 2**20 + 1):
        with pytest.raises(InputError, match="no GPU has"):
            check_card_memory(memory_mib)


def test_every_known_card_has_a_memory_that_can_be_given() -> None:
    """So no declaration is in the wrong unit: cards have from 8 GB to 1 TB."""
    for memory_mib in MEMORY_MIB.values():
        assert 7_000 < memory_mib < 2**20
        check_card_memory(memory_mib)
