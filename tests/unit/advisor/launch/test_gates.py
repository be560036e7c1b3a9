"""Gates that open together, and copies that do not go in step."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_jobs import Clock

from advisor.core.records import SETTLE_S
from advisor.launch import start

SETS = st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.floats(1e-4, 1e4)), min_size=1, max_size=7
)


def opened(jobs: list[tuple[str, float | None]]) -> list[float]:
    clock, at_s = Clock(0.0), [-1.0] * len(jobs)

    def job(n: int, name: str) -> Any:
        def go() -> None:
            at_s[n] = clock.now_s

        return SimpleNamespace(job=SimpleNamespace(name=name), go=go)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "time", clock)
        all_of = [job(n, name) for n, (name, _) in enumerate(jobs)]
        start.open_gates(cast("Any", all_of), [rate for _, rate in jobs])
    return at_s


@given(SETS)
def test_no_two_copies_begin_together_and_all_do_soon(jobs: list[tuple[str, float | None]]) -> None:
    at_s = opened(jobs)
    for name in "ab":
        own = [moment for (job, _), moment in zip(jobs, at_s, strict=True) if job == name]
        assert len({*own}) == len(own)
        assert own[:1] in ([], [0.0])
    assert 0 <= max(at_s) < SETTLE_S


def test_copies_are_a_part_of_a_step_apart() -> None:
    assert opened([("a", 1.5), ("a", 1.5), ("b", None)]) == pytest.approx([0, 1 / 3, 0])
