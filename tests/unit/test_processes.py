"""Which processes carry the variables of a limit."""

import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from advisor.runtime.processes import lacking

LIMIT = {"LIMIT": "10"}


@contextmanager
def process(variables: Mapping[str, str]) -> Generator[int]:
    """A process with these variables alone, looked at as soon as it can be."""
    command = [shutil.which("sleep") or "sleep", "60"]
    with subprocess.Popen(command, env=variables) as started:
        try:
            yield started.pid
        finally:
            started.kill()


def test_process_in_exec_is_not_taken_for_one_without_limit() -> None:
    """/proc shows no variables in the middle of exec; about one look in four falls there."""
    for _ in range(100):
        with process(LIMIT) as pid:
            assert lacking([pid], LIMIT) == []


def test_process_with_another_limit_or_no_variables_is_named() -> None:
    """A script inside a job may change or clear them."""
    with process(LIMIT) as held, process({"LIMIT": "20"}) as other, process({}) as cleared:
        assert lacking([held, other, cleared], LIMIT) == sorted([other, cleared])


def test_process_that_has_ended_is_not_named() -> None:
    """It cannot run beside its limit any more."""
    with process({}) as ended:
        pass
    assert lacking([ended], LIMIT) == []
