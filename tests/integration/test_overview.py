"""The overview of a real service: launches of folders, before and after a restart, and a demo."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import in_this_process
from ended_launches import ended_launch
from forked import start_forked
from raw_server import ask, raw_server
from waiting import announced, ending, eventually

from advisor.formats.moments import to_text
from advisor.launch.folder import new_launch_id, write_history
from advisor.launch.spec import History, LaunchStatus, Ledger
from advisor_cli import top
from advisor_data import open_store

pytestmark = pytest.mark.slow

LEDGER = Ledger(held_s=3600, energy_j=7.2e5, alone_s=5400, alone_j=1.08e6, freed_idle_j=1e5)


def _ran(status: LaunchStatus) -> LaunchStatus:
    ended = datetime.now(UTC)
    return replace(
        status, overlap_s=60, ledger=LEDGER, ended_at=to_text(ended),
        started_at=to_text(ended - timedelta(seconds=60)),
    )  # fmt: skip


def test_what_ended_is_there_after_a_restart(tmp_path: Path) -> None:
    """With its history, and counted once however often it is asked for or the service starts."""
    home = tmp_path / "home"
    with open_store(None, home):
        folder = ended_launch(home, 1, 0.0, state="failed", name=new_launch_id())
    folder.write_status(replace(_ran(folder.read_status()), cause="secret", code="job"))
    write_history(folder, History(started_at="", step_s=1.0, power_w=(300.0,) * 60))
    for _ in range(2):
        with raw_server(home) as server:

            def found(port: int = server.port) -> dict[str, Any] | None:
                seen = ask(port, "GET", "/v1/overview").json
                return seen if seen["ended"] else None

            seen = eventually(found, lambda: found)
            [one] = seen["ended"]
            assert one["launch_id"] == folder.launch_id
            assert one["cause"] != "secret"
            assert len(one["history"]["power_w"]) == 30
            assert (seen["week"]["launches"], seen["running"]) == (1, [])
            assert seen["week"]["kwh_saved"] == (1.08e6 - 7.2e5) / 3.6e6


def test_a_demonstration_moves_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Recorded launches through the code of every launch; each answer says that they are."""
    home, log = tmp_path / "home", tmp_path / "log"
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "XDG_"))}
    environment = kept | {"HOME": str(home), "TMPDIR": str(tmp_path)}
    with (
        log.open("wb") as output,
        start_forked(
            ("serve", "--demo", "--port", "0"), environment, tmp_path, output, output
        ) as process,
        ending(process),
    ):
        port = int(announced(process, log, r"advisor listens on \S+:(\d+)\n"))

        def seen(after: str = "") -> dict[str, Any] | None:
            found = ask(port, "GET", "/v1/overview").json
            return found if found["ended"] and found["at"] > after else None

        first = eventually(seen, log.read_text)
        later = eventually(lambda: seen(first["at"]), log.read_text)
        launches = [*later["running"], *later["ended"]]
        assert all(one["forecast"] and one["silent_s"] is None for one in launches)
        assert (len(later["gpus"]), later["ended"][0]["mean_power_w"] > 0) == (4, True)
        assert later["week"]["gpu_hours_saved"] > 0
        for path in ("/v1/overview", "/v1/launches", "/v1/jobs", "/v1/observations", "/v1/no"):
            answer = ask(port, "GET", path)
            marks = (json.loads(answer.body)["replayed"], answer.headers["advisor-replayed"])
            assert marks == (True, "true"), path
        # What plays is no experience with these jobs: it would have all answers made again.
        assert "advisor_drifting" not in ask(port, "GET", "/metrics").text
        assert "<strong>Replayed.</strong>" in ask(port, "GET", "/launches").text
        assert "ERROR" not in log.read_text()
        [folder] = eventually(
            lambda: {place.parent for place in _open_files(process.pid) if "demo" in str(place)}
        )
        assert folder.is_dir()
    assert (folder.exists(), [*home.iterdir()]) == (False, [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_demonstration_that_is_ended_at_its_start_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    """It reads what was recorded for some seconds before a server could take a signal."""
    environment = {**os.environ, "HOME": str(tmp_path / "none"), "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "advisor", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as process:
        # Not any entry: Python writes a file there itself, to see whether it can.
        eventually(lambda: [*tmp_path.glob("advisor-*")])
        process.send_signal(number)
        assert process.wait(20) != 0
    assert [*tmp_path.iterdir()] == []


def _open_files(pid: int) -> list[Path]:
    """Of its database, by which the home is found that it has made for itself."""
    found = list[Path]()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            found.append(link.readlink())
    return [place for place in found if place.suffix == ".db"]


def test_top_shows_it_from_folders_in_a_pipe_and_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no service answers; no line is longer than it is told, and nothing steers a screen."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(top, "_SERVICE", "http://127.0.0.1:9")
    advisor = in_this_process(capsys, monkeypatch, tmp_path)
    assert "nothing was launched" in advisor("top").out
    folder = ended_launch(tmp_path / "home", 1, 0.0, name=new_launch_id())
    folder.write_status(_ran(folder.read_status()))
    shown = advisor("top", "--once").out
    assert all(part in shown for part in ("gemm and sort", "100 Wh"))
    assert all(len(line) <= 80 and line.isprintable() for line in shown.splitlines())
    seen = json.loads(advisor("top", "--json").out)
    assert {*seen} == {
        "schema", "replayed", "at", "gpus", "running", "ended", "today", "week"
    }  # fmt: skip
    assert seen["today"]["gpu_hours_saved"] == 0.5
    refused = advisor("top", "--service", "http://127.0.0.1:9")
    assert refused.code != 0
    assert "advisor serve" in refused.err


def test_top_ends_with_q_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environment = {**os.environ, "ADVISOR_HOME": str(tmp_path / "home"), "TERM": "xterm"}
    words = [sys.executable, "-m", "advisor", "top"]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, env=environment) as process:
        said = b""
        while b"GPU hours" not in said:
            said += os.read(ours, 4096)
        os.write(ours, b"q")
        assert process.wait(20) == 0
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
