"""Waiting for shards: answers, late answers, shards that are given up, progress, and Ctrl-C."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from host import UUID
from store_points import pair_point

from advisor.errors import InputError
from advisor_cli.shared.console import plain_console
from advisor_profiling.fanout import drive, node
from advisor_profiling.fanout.shards import Answer, Shard, ShardReporter, prepare, write_answer
from advisor_profiling.reports.sweep import ConsoleReporter

GOOD = Answer(0, {"measured": 3})


@dataclass
class Engine:
    """Does one thing at each look."""

    looks: Sequence[Callable[[], object]]
    gone: dict[Path, str] = field(default_factory=dict)
    submitted: list[Shard] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def stop_earlier(self) -> None:
        self.said.append("stop earlier")

    def submit(self, shards: Sequence[Shard]) -> None:
        self.submitted += shards

    def ended(self) -> Mapping[Path, str]:
        if self.looks:
            first, *self.looks = self.looks
            first()
        return self.gone

    def stop(self) -> None:
        self.said.append("stop")

    def close(self) -> None:
        self.said.append("close")


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Shard]:
    """Two shards whose folders are there; nobody waits."""
    monkeypatch.setattr(drive, "_POLL_S", 0)
    monkeypatch.setattr(drive, "_SAY_EVERY_S", 0)
    made = [
        Shard(
            name=f"shard-{n}", folder=tmp_path / str(n), arguments=(), cwd=tmp_path, environment={}
        )
        for n in (1, 2)
    ]
    prepare(made, None)
    return made


def test_answers_come_back_in_order(shards: list[Shard]) -> None:
    """However late each is, and the engine is left."""
    first, second = (shard.folder for shard in shards)
    engine = Engine(
        [
            lambda: None,
            lambda: write_answer(second, GOOD),
            lambda: write_answer(first, Answer(5, {})),
        ]
    )
    assert drive.carry_out(shards, engine, print) == [Answer(5, {}), GOOD]
    assert engine.said == ["close"]


def test_a_shard_that_has_answered_is_not_submitted(shards: list[Shard]) -> None:
    """As after a command that was stopped when one of its shards was done."""
    write_answer(shards[0].folder, GOOD)
    engine = Engine([lambda: write_answer(shards[1].folder, GOOD)])
    assert drive.carry_out(shards, engine, print) == [GOOD, GOOD]
    assert engine.submitted == shards[1:]


def test_a_shard_that_was_given_up_says_why(
    shards: list[Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine says, else the last line of its log; the others' answers count."""
    monkeypatch.setattr(drive, "_LATE_S", 0)
    one, two = (shard.folder for shard in shards)
    (two / "log").write_text("starting ...\nout of memory\n")
    found = drive.carry_out(shards, Engine([], {one: "the node died", two: ""}), print)
    assert found == [
        f"shard-1 gave no answer: the node died (see {one})",
        f"shard-2 gave no answer: out of memory (see {two})",
    ]


def test_an_answer_may_come_after_the_end(shards: list[Shard]) -> None:
    """A network file system shows files late."""
    one, two = (shard.folder for shard in shards)
    looks = [lambda: None, lambda: write_answer(one, GOOD), lambda: write_answer(two, GOOD)]
    assert drive.carry_out(shards, Engine(looks, {one: "", two: ""}), print) == [GOOD, GOOD]


def test_progress_is_the_sum_with_the_longest_rest(shards: list[Shard]) -> None:
    """Shards that wait for a GPU are counted; a line comes when something has changed."""
    one, two = (shard.folder for shard in shards)
    reporters = [ShardReporter(f, ConsoleReporter(plain_console(stderr=True))) for f in (one, two)]
    lines: list[str] = []
    looks = [
        lambda: None,
        lambda: reporters[0].point(pair_point(1), 2, 5, 130.0),
        lambda: None,
        lambda: reporters[1].point(pair_point(2), 1, 4, 61.0),
        lambda: write_answer(one, GOOD),
        lambda: write_answer(two, GOOD),
    ]
    drive.carry_out(shards, Engine(looks), lines.append)
    assert lines == [
        "0 of 2 shards done, and 2 shards without a point yet",
        "0 of 2 shards done; 2 of 5 windows, and 1 shard without a point yet; eta 2:10",
        "0 of 2 shards done; 3 of 9 windows; eta 2:10",
        "1 of 2 shards done; 3 of 9 windows; eta 1:01",
    ]


def test_ctrl_c_stops_the_engine(shards: list[Shard]) -> None:
    """Before anything else is done with the points."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    engine = Engine([interrupt])
    with pytest.raises(KeyboardInterrupt):
        drive.carry_out(shards, engine, print)
    assert engine.said == ["stop", "close"]


def test_a_node_that_cannot_do_a_shard_says_what_is_missing(
    shards: list[Shard], tmp_path: Path
) -> None:
    """A folder that it does not see, or a GPU that nobody gave."""
    with pytest.raises(InputError, match="names one"):
        node.run_shard(shards[0], {"CUDA_VISIBLE_DEVICES": ""})
    shards[0].folder.rmdir()
    with pytest.raises(InputError, match=r"has no folder .*set ADVISOR_HOME"):
        node.run_shard(shards[0], {"CUDA_VISIBLE_DEVICES": UUID})
