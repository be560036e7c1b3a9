"""Which processes carry the variables of a limit."""

from sleeper import sleeper

from advisor.runtime.processes import lacking

LIMIT = {"LIMIT": "10"}


def test_process_in_exec_is_not_taken_for_one_without_limit() -> None:
    """/proc shows no variables in the middle of exec; about one look in four falls there."""
    for _ in range(100):
        with sleeper(LIMIT) as pid:
            assert lacking([pid], LIMIT) == []


def test_process_with_another_limit_or_no_variables_is_named() -> None:
    """A script inside a job may change or clear them."""
    with sleeper(LIMIT) as held, sleeper({"LIMIT": "20"}) as other, sleeper({}) as cleared:
        assert lacking([held, other, cleared], LIMIT) == sorted([other, cleared])
