"""Who has caused a fault that took all down: said only where there is evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_jobs import FAULT, Script, Watch, pid_of

from advisor.runtime.mps import named_in_faults

GONE = Script(ends_s=10, status=1, tail=FAULT)
A, B, STRANGER = pid_of("a"), pid_of("b"), 7


@pytest.mark.parametrize(
    ("named", "outcomes", "said"),
    [
        ({B}, ["taken-down", "failed"], "a fault of b took a down with it"),
        ({B, STRANGER}, ["taken-down", "failed"], f"names its process {B}"),
        ({A, B}, ["taken-down"] * 2, "which one caused it the driver does not tell"),
        ({STRANGER}, ["taken-down"] * 2, "which one caused it the driver does not tell"),
        (set[int](), ["taken-down"] * 2, "which one caused it the driver does not tell"),
    ],
)
def test_who_is_named_alone_has_caused_it(
    monkeypatch: pytest.MonkeyPatch, named: set[int], outcomes: list[str], said: str
) -> None:
    """Of several nobody knows; a process of no job is none of them."""
    watch = Watch(monkeypatch, GONE, GONE, backend={"named": frozenset(named)})
    watch.go_on(20)
    assert watch.outcomes == outcomes
    assert all(said in (one.error or "") for one in watch.monitor.jobs)
    assert {one.code for one in watch.monitor.jobs} == {"mps-fault"}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 99_999))))
def test_only_lines_about_faults_count(lines: list[tuple[bool, int]]) -> None:
    """That a client has connected says nothing of it; nor does the number of the server."""
    what = {True: "encountered a memory fault", False: "connected"}
    log = "\n".join(f"[.. Server 5] Client {{PID: {pid}}} {what[bad]}" for bad, pid in lines)
    assert named_in_faults(log) == {pid for bad, pid in lines if bad}
    assert named_in_faults("[.. Server 12] Server encountered a fatal exception") == set()
