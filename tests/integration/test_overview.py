"""The overview of a real service: launches of folders, before and after a restart, and a demo."""

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ended_launches import ended_launch
from forked import start_forked
from raw_server import ask, raw_server
from waiting import announced, ending, eventually

from advisor.formats.moments import to_text
from advisor.launch.records.folder import new_launch_id
from advisor.launch.records.history import History, write_history
from advisor.launch.records.ledger import Ledger
from advisor_data import open_store

LEDGER = Ledger(held_s=3600, energy_j=7.2e5, alone_s=5400, alone_j=1.08e6, freed_idle_j=1e5)


def test_what_ended_is_there_after_a_restart(tmp_path: Path) -> None:
    """With its history, and counted once however often it is asked for or the service starts."""
    home = tmp_path / "home"
    with open_store(None, home):
        folder = ended_launch(home, 1, 0.0, state="failed", name=new_launch_id())
    ended = datetime.now(UTC)
    status = replace(
        folder.read_status(), overlap_s=60, ledger=LEDGER, cause="secret", code="job",
        started_at=to_text(ended - timedelta(seconds=60)), ended_at=to_text(ended),
    )  # fmt: skip
    folder.write_status(status)
    write_history(folder, History(started_at="", step_s=1.0, power_w=(300.0,) * 60))
    for _ in range(2):
        with raw_server(home) as server:

            def found(port: int = server.port) -> dict[str, Any] | None:
                seen = ask(port, "GET", "/v1/overview").json
                return seen if seen["ended"] else None

            seen = eventually(found, lambda: found)
            [one] = seen["ended"]
            assert one["launch"]["launch_id"] == folder.launch_id
            assert one["launch"]["cause"] != "secret"
            assert len(one["history"]["power_w"]) == 30
            assert (seen["week"]["launches"], seen["running"]) == (1, [])
            assert seen["week"]["kwh_saved"] == (1.08e6 - 7.2e5) / 3.6e6


def test_a_demonstration_moves_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Recorded launches through the code of every launch; each answer says that they are."""
    home, log = tmp_path / "home", tmp_path / "log"
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "XDG_"))}
    environment = kept | {"HOME": str(home), "TMPDIR": str(tmp_path)}
    words = ("serve", "--demo", "--port", "0")
    with (
        log.open("wb") as output,
        start_forked(words, environment, tmp_path, output, output) as process,
        ending(process),
    ):
        port = int(announced(process, log, r"advisor listens on \S+:(\d+)\n"))

        def seen() -> dict[str, Any]:
            return ask(port, "GET", "/v1/overview").json

        def ended() -> dict[str, Any] | None:
            return found if (found := seen())["ended"] else None

        first = eventually(ended, log.read_text)
        time.sleep(1.5)
        later = seen()
        assert later["at"] > first["at"]
        assert len(later["gpus"]) == 4
        for one in (*later["running"], *later["ended"]):
            assert one["launch"]["forecast"]
            assert one["launch"]["silent_s"] is None
        [last, *_] = later["ended"]
        assert last["launch"]["mean_power_w"] > 0
        assert later["week"]["gpu_hours_saved"] > 0
        for path in ("/v1/overview", "/v1/launches", "/v1/jobs", "/v1/observations", "/v1/no"):
            answer = ask(port, "GET", path)
            assert json.loads(answer.body)["replayed"] is True, path
            assert answer.headers["advisor-replayed"] == "true"
        assert "<strong>Replayed.</strong>" in ask(port, "GET", "/launches").text
        assert "ERROR" not in log.read_text()
    assert [*home.iterdir()] == []
    assert not [*tmp_path.glob("advisor-demo-*")]
