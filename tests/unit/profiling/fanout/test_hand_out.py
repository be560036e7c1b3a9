"""Waiting for shards: answers, late answers, shards that are given up, what they say, Ctrl-C."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from host import UUID

from advisor.errors import InputError
from advisor_profiling.fanout import hand_out as module
from advisor_profiling.fanout.hand_out import hand_out
from advisor_profiling.fanout.shards import Shard, ShardAnswer, run_shard

GOOD = ShardAnswer(0, {"measured": 3})


@dataclass
class ScriptedEngine:
    """Does one thing at each look."""

    looks: Sequence[Callable[[], object]]
    gone: dict[str, str] = field(default_factory=dict)
    submitted: list[Shard] = field(default_factory=list)
    stopped: bool = False

    def submit(self, shards: Sequence[Shard]) -> None:
        self.submitted += shards

    def ended(self) -> Mapping[str, str]:
        if self.looks:
            first, *self.looks = self.looks
            first()
        return self.gone

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Shard]:
    """Two shards whose folders are there; nobody waits."""
    monkeypatch.setattr(module, "_POLL_S", 0)
    made = [
        Shard(
            name=f"shard-{n}", folder=tmp_path / str(n), arguments=(), cwd=tmp_path, environment={}
        )
        for n in (1, 2)
    ]
    for shard in made:
        shard.folder.mkdir()
    return made


def answer(shard: Shard, given: ShardAnswer = GOOD) -> None:
    """What a shard leaves when it is done."""
    (shard.folder / "answer.json").write_text(json.dumps(asdict(given)))


def write(shard: Shard, text: str) -> None:
    """Go on with a shard's log."""
    with (shard.folder / "log").open("a") as log:
        log.write(text)


@pytest.mark.parametrize("gone", [{}, {"shard-1": "", "shard-2": ""}])
def test_answers_come_back_in_order(shards: list[Shard], gone: dict[str, str]) -> None:
    """However late each is, also after its end: a network file system shows files late."""
    first, second = shards
    engine = ScriptedEngine(
        [lambda: None, lambda: answer(second), lambda: answer(first, ShardAnswer(5, {}))], gone
    )
    assert hand_out(shards, engine, print) == [ShardAnswer(5, {}), GOOD]
    assert not engine.stopped


def test_a_shard_that_has_answered_is_not_submitted(shards: list[Shard]) -> None:
    """As after a command that was stopped when one of its shards was done."""
    answer(shards[0])
    engine = ScriptedEngine([lambda: answer(shards[1])])
    assert hand_out(shards, engine, print) == [GOOD, GOOD]
    assert engine.submitted == shards[1:]


def test_a_shard_that_was_given_up_says_why(
    shards: list[Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine says, else the last line of its log; the others' answers count."""
    monkeypatch.setattr(module, "_LATE_S", 0)
    one, two = shards
    write(two, "starting ...\nout of memory\n")
    ended = hand_out(
        shards, ScriptedEngine([], {one.name: "the node died", two.name: ""}), lambda _: None
    )
    assert [given.code for given in ended] == [5, 5]
    assert [given.said["error"]["message"] for given in ended] == [
        f"it gave no answer: the node died (see {one.folder})",
        f"it gave no answer: out of memory (see {two.folder})",
    ]


def test_whole_lines_are_passed_on_as_they_come(shards: list[Shard]) -> None:
    one, two = shards
    lines: list[str] = []

    def last() -> None:
        write(two, "1/1 gemm\n")
        answer(two)

    looks = [
        lambda: write(one, "on node-7, GPU 0\n1/"),
        lambda: write(one, "2 triad\n"),
        lambda: answer(one),
        last,
    ]
    hand_out(shards, ScriptedEngine(looks), lines.append)
    assert lines == [
        "shard-1 |on node-7, GPU 0",
        "shard-1 |1/2 triad",
        "1 of 2 shards done",
        "shard-2 |1/1 gemm",
        "2 of 2 shards done",
    ]


def test_ctrl_c_stops_the_engine(shards: list[Shard]) -> None:
    """Before anything else is done with the points."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    engine = ScriptedEngine([interrupt])
    with pytest.raises(KeyboardInterrupt):
        hand_out(shards, engine, print)
    assert engine.stopped


def test_a_node_that_cannot_do_a_shard_says_what_is_missing(shards: list[Shard]) -> None:
    """A folder that it does not see, or a GPU that nobody gave."""
    with pytest.raises(InputError, match="names one"):
        run_shard(shards[0], {"CUDA_VISIBLE_DEVICES": ""})
    shards[0].folder.rmdir()
    with pytest.raises(InputError, match=r"has no folder .*set ADVISOR_HOME"):
        run_shard(shards[0], {"CUDA_VISIBLE_DEVICES": UUID})
