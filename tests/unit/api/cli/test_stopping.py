"""How signals end a command that measures."""

import io
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from rich.console import Console

from advisor_cli.measure.testbeds import stoppable


@contextmanager
def disposition(number: signal.Signals, handler: signal.Handlers) -> Generator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_says_what_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    text = tmp_path / "said"
    with disposition(number, signal.SIG_DFL):
        with (
            text.open("a") as file,
            pytest.raises(typer.Exit) as ended,
            stoppable(Console(file=file)),
        ):
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_DFL
    assert ended.value.exit_code == 130
    said = text.read_text()
    assert "the same command goes on from here" in said
    assert ("stopping: the jobs are ended first" in said) == (number != signal.SIGHUP)


def test_nohup_is_heeded() -> None:
    """Who starts a run with nohup wants it to outlive the terminal."""
    with disposition(signal.SIGHUP, signal.SIG_IGN):
        with stoppable(Console(file=io.StringIO())):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
