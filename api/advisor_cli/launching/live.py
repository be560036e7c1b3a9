"""Follows a launch from outside: as a live table, as plain lines, or as JSON lines."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from rich.live import Live

from advisor.core.records import Observation
from advisor.errors import AdvisorError, InputError, JobError
from advisor.formats.rows import from_row, to_row
from advisor.formats.wire import to_plain
from advisor.launch.folder import LaunchFolder, observation_lines
from advisor.launch.start import LOG
from advisor.launch.status import LaunchStatus
from advisor_cli.launching.text import line, table
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.say import as_json_text, say

_LOOK_S = 0.2
_LINE_S = 10.0

_OWN_CODES = dict.fromkeys(("job-hung", "time-limit", "mps-fault"), JobError.exit_code)

Follow = Callable[[Iterator[LaunchStatus]], LaunchStatus]
"""Shows statuses as they come, and returns the last one."""


def statuses(
    folder: LaunchFolder, supervisor: subprocess.Popen[bytes] | None = None
) -> Iterator[LaunchStatus]:
    """Each new status until the launch, whose supervisor may have been started just now, is over.

    Raises:
        JobError: the supervisor never began.
    """
    seen = None
    while True:
        # Asked first: it may begin and end between the two.
        gone = supervisor is not None and supervisor.poll() is not None
        status = folder.read_status()
        if status != seen:
            yield status
        if status.over:
            return
        if gone and not folder.claimed():
            raise JobError(
                f"the supervisor of {folder.launch_id} did not begin",
                why=_tail(folder),
                fix=f"see {folder.path / LOG}",
            )
        seen = status
        time.sleep(_LOOK_S)


def show_lines(found: Iterator[LaunchStatus]) -> LaunchStatus:
    """A line for each change of state or pair, and one now and then."""
    said: object = None
    said_s = 0.0

    def show(status: LaunchStatus) -> None:
        nonlocal said, said_s
        key = (status.state, status.pair_number, [job.outcome for job in status.jobs])
        if key != said or time.monotonic() - said_s > _LINE_S:
            said, said_s = key, time.monotonic()
            say(line(status))

    return _last(found, show)


def show_live(found: Iterator[LaunchStatus]) -> LaunchStatus:
    """A table that is drawn again with each status."""
    console = plain_console()
    with Live(console=console, auto_refresh=False) as live:
        return _last(found, lambda one: live.update(table(one, console.width), refresh=True))


def show_json(folder: LaunchFolder) -> Follow:
    """One object a line as in status.json; the last one has the observations, too."""

    def show(found: Iterator[LaunchStatus]) -> LaunchStatus:
        status = _last(found, lambda status: None if status.over else say(as_json_text(status)))
        say(as_json_text(final_json(folder, status)))
        return status

    return show


def _last(found: Iterator[LaunchStatus], show: Callable[[LaunchStatus], object]) -> LaunchStatus:
    """The last of some statuses, each of which is shown."""
    status = None
    for status in found:
        show(status)
    assert status is not None
    return status


def final_json(folder: LaunchFolder, status: LaunchStatus) -> dict[str, Any]:
    """A status with what its pairs did; docs/launch.md explains the keys."""
    return {**to_plain(status), "observations": [*map(to_row, observations(folder))]}


def observations(folder: LaunchFolder) -> list[Observation]:
    """What those that are over did together; a line that was cut off is left out."""
    found: list[Observation] = []
    with suppress(OSError):
        for text in observation_lines(folder):
            with suppress(ValueError, InputError):
                found.append(from_row(Observation, json.loads(text)))
    return found


def exit_code(status: LaunchStatus) -> int:
    """Of the command: 0 for what ended well or as asked, else that of the error."""
    if status.state != "failed":
        return 0
    codes = {error.code: error.exit_code for error in AdvisorError.__subclasses__()}
    return (codes | _OWN_CODES).get(status.code or "", AdvisorError.exit_code)


@contextmanager
def asking_to_stop(ask: Callable[[], object]) -> Generator[None]:
    """Ctrl-C and SIGTERM ask what runs to stop, and the block goes on until it has.

    A lost terminal, or an end by force, leaves it running.
    """

    def take(_number: int, _frame: FrameType | None) -> None:
        ask()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, take) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tail(folder: LaunchFolder) -> str:
    with suppress(OSError):
        return (folder.path / LOG).read_bytes()[-500:].decode(errors="replace").strip()
    return ""
