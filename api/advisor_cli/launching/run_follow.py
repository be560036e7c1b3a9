"""Runs a queue to its end, and shows it: as a live table, as lines, or as JSON lines."""

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager

from rich.live import Live

from advisor_advice.filling.queue_run import QueueRun
from advisor_cli.launching.live import asking_to_stop
from advisor_cli.launching.run_screen import event_lines, table
from advisor_cli.launching.run_state import RunState, run_state
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.say import as_json_text, say

_LOOK_S = 0.25

_Show = Callable[[RunState], None]

_Texts = Callable[[RunState | None, RunState], Iterable[str]]
"""Lines that tell what has changed since the state before."""


def follow(queue: QueueRun, works_s: Mapping[str, float], *, as_json: bool) -> RunState:
    """Run a queue until nothing is left to do, or it is stopped; its last state.

    Raises:
        AdvisorError: what is needed for advice cannot be read; what runs goes on.
        OSError: what is kept of it cannot be written.
    """
    with _shown(as_json=as_json) as show, asking_to_stop(queue.stop):
        queue.take_up()
        while True:
            look = queue.look()
            state = run_state(queue, look, works_s)
            show(state)
            if state.state in ("done", "failed", "stopped"):
                queue.finish(look)
                return state
            if not queue.act(look):
                time.sleep(_LOOK_S)


def stop_all(queue: QueueRun) -> None:
    """Stop what runs of a queue, and wait until it has ended."""
    queue.stop()
    while not (look := queue.look()).over:
        queue.act(look)
        time.sleep(_LOOK_S)


@contextmanager
def _shown(*, as_json: bool) -> Generator[_Show]:
    if as_json:
        yield _at_changes(lambda _, state: [as_json_text(state)])
    elif plain_console().is_terminal:
        with Live(console=plain_console(), auto_refresh=False) as live:
            yield lambda state: live.update(table(state), refresh=True)
    else:
        yield _at_changes(event_lines)


def _at_changes(texts: _Texts) -> _Show:
    """Lines when a job is in another state than before, or its progress is unknown or stalled."""
    before: RunState | None = None

    def show(state: RunState) -> None:
        nonlocal before
        if before is None or _key(before) != _key(state):
            for text in texts(before, state):
                say(text)
        before = state

    return show


def _key(state: RunState) -> object:
    return state.state, [(job.state, job.unread_text) for job in state.jobs]
