"""When a campaign stops spending windows on what fails again and again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor_profiling.campaign.campaign import MAX_FAILURES, RetryLimit

jobs = st.sampled_from([("a",), ("b",), ("a", "a"), ("a", "b"), ("a", "c"), ("b", "c")])

A_FAILED = "a failed 3 times in a row before"


def after(*failed: tuple[str, ...]) -> RetryLimit:
    """The patience left after windows of these jobs failed one after the other."""
    retry_limit = RetryLimit()
    for names in failed:
        retry_limit.failed(names)
    return retry_limit


@pytest.mark.parametrize(
    ("failed", "verdict", "given_up", "goes_on"),
    [
        # Nobody else can have been at fault; its pairs are not tried either.
        (["a", "a", "a"], A_FAILED, ["a", "ab"], ["bc"]),
        # It is what their windows have in common.
        (["ab", "ac", "ad"], A_FAILED, ["ae"], ["bc"]),
        # Beside itself it is one job, whose failure is one failure.
        (["aa", "ab", "ac"], A_FAILED, ["ad"], []),
        (["aa", "ab"], "", [], ["ac"]),
        (["aa", "a"], "", [], ["a"]),
        # Which of two is at fault is not known, so each goes on next to others.
        (
            ["ab", "ab", "ab"],
            "a with b failed 3 times in a row before",
            ["ab"],
            ["a", "b", "ac", "bc", "aa"],
        ),
        # Beside itself a job may lack memory that it has next to others.
        (["aa", "aa", "aa"], "a with a failed 3 times in a row before", ["aa"], ["ab"]),
        # Its neighbours failed next to it and nobody else.
        (
            [f"x{other}" for other in "abc" for _ in range(MAX_FAILURES)],
            "x failed 9 times in a row before",
            ["xd"],
            ["ab", "ac", "bc", "a"],
        ),
        # Of three or more it is the one that all failed sets have in common.
        (["abc", "ade", "afg"], A_FAILED, ["a", "ax"], ["bde", "cfg"]),
        # As far as anybody knows either of two.
        (["abc", "abd", "abe"], "", [], ["abf", "acd", "bcd"]),
        (["abc", "abc", "abc"], "a with b with c failed 3 times in a row before", ["abc"], ["ab"]),
        # Beside itself and a third one, it is the one that fails with others, too.
        (["aab", "aac", "aad"], "", [], ["aae", "ab"]),
        (["aab", "aac", "ad"], A_FAILED, ["ae"], ["bcd"]),
    ],
)
def test_those_that_failed_alone_or_beside_several_are_given_up(
    failed: list[str], verdict: str, given_up: list[str], goes_on: list[str]
) -> None:
    """And pairs that failed; a letter is a job."""
    retry_limit = after(*map(tuple, failed))
    assert all(retry_limit.verdict(tuple(names)) == verdict for names in given_up)
    assert all(retry_limit.verdict(tuple(names)) is None for names in goes_on)


@pytest.mark.parametrize(
    ("acts", "of", "verdict"),
    [
        ("-ab -ac +a -ad", "ae", False),
        ("-ab -ac +ab -ad", "ae", False),
        ("-ab -ab -ab +ac +bc", "ab", True),
        ("-ab -ab -ab +ac +bc", "ad", False),
        ("-ab -ab -ab +ac +bc +ab -ab", "ab", False),
    ],
)
def test_window_that_worked_clears_its_jobs(acts: str, of: str, verdict: bool) -> None:
    """Failures count in a row only; a pair is cleared by itself alone."""
    retry_limit = RetryLimit()
    for act in acts.split():
        (retry_limit.worked if act[0] == "+" else retry_limit.failed)(tuple(act[1:]))
    assert (retry_limit.verdict(tuple(of)) is not None) is verdict


@given(st.lists(jobs), jobs)
def test_nothing_is_given_up_before_it_failed_often_enough(
    failed: list[tuple[str, ...]], asked: tuple[str, ...]
) -> None:
    verdict = after(*failed).verdict(asked)
    most = max(sum(job in names for names in failed) for job in asked)
    if verdict is not None:
        assert most >= MAX_FAILURES
        assert int(verdict.split(" failed ")[1].split()[0]) <= most
    assert (verdict is not None) or failed.count(asked) < MAX_FAILURES
