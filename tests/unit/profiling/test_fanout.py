"""Shards: parts of cores and of the plan, waiting for answers, what they say, errors, Ctrl-C."""

import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from host import UUID
from hypothesis import given, strategies as st

from advisor.errors import AdvisorError, BusyError, InputError, JobError
from advisor.settings import read_settings
from advisor_data import open_store
from advisor_profiling import fanout
from advisor_profiling.fanout import Ended, FanOut, Shard, hand_out, on_this_host, run_everywhere

GOOD = json.dumps({"measured": 3})


@dataclass
class Child:
    """A process that has said all it has to say."""

    answer: str = GOOD
    code: int = 0
    says: str = ""
    signals: list[int] = field(default_factory=list)

    def poll(self) -> int:
        return self.code

    def terminate(self) -> None:
        self.signals.append(signal.SIGTERM)

    def wait(self) -> int:
        self.signals.append(0)
        return self.code


@dataclass
class Host:
    """Starts such processes, and remembers the shards."""

    children: Sequence[Child]
    store: Path
    shards: list[Shard] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def start(self, shard: Shard, _environment: Mapping[str, str]) -> Child:
        if len(self.shards) == len(self.children):
            raise OSError("no more processes")
        self.shards.append(shard)
        child = self.children[len(self.shards) - 1]
        (shard.folder / "output").write_text(child.answer)
        (shard.folder / "log").write_text(child.says)
        return child

    def run(self, gpus: int, part: tuple[int, int] = (1, 1)) -> tuple[list[dict[str, Any]], int]:
        names = [f"GPU {gpu}" for gpu in range(gpus)]
        wanted = FanOut(names=names, gpus=[*map(str, range(gpus))], part=part)
        with open_store(f"sqlite:///{self.store}", self.store.parent) as store:
            return run_everywhere(wanted, read_settings({}), store, self.lines.append)


HostOf = Callable[..., Host]


@pytest.fixture
def host_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostOf:
    """Makes a host of physical cores (two logical ones each) on which these children run."""
    monkeypatch.setattr(fanout, "_POLL_S", 0)
    monkeypatch.setattr(sys, "argv", ["advisor", "colocate", "plan.yaml"])

    def make(*children: Child, cores: int = 8) -> Host:
        host = Host(children, tmp_path / "points.db")
        monkeypatch.setattr(Shard, "start", lambda *asked: host.start(*asked))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        monkeypatch.setattr(fanout, "physical_cores", lambda: groups(cores))
        return host

    return make


def groups(count: int) -> list[frozenset[int]]:
    """Physical cores as Linux numbers them with hyperthreads."""
    return [frozenset({core, core + count}) for core in range(count)]


@given(gpus=st.integers(1, 16), cores=st.integers(1, 64))
def test_each_gpu_has_as_many_physical_cores_of_its_own(gpus: int, cores: int) -> None:
    """Launch-bound jobs on two GPUs do not take turns on a core, nor on its hyperthreads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fanout, "physical_cores", lambda: groups(cores))
        wanted = FanOut(names=[*map(str, range(gpus))])
        shards = fanout._shards(wanted, Path(), read_settings({}))  # pyright: ignore[reportPrivateUsage]
    parts = [shard.cores for shard in shards]
    if cores < gpus:
        assert parts == [frozenset[int]().union(*groups(cores))] * gpus
    else:
        assert {len(part) for part in parts} == {2 * (cores // gpus)}
        assert all(sum(bool(part & group) for part in parts) <= 1 for group in groups(cores))


@pytest.mark.parametrize("count", [1, 3])
def test_parts_of_all_hosts_and_gpus_are_the_plan(count: int, host_of: HostOf) -> None:
    """Hosts that measure one part each, with two GPUs each, leave nothing out."""
    parts: list[str] = []
    for index in range(1, count + 1):
        host = host_of(Child(), Child(json.dumps({"schema": 1, "measured": 4}), says="1/2 [red]\n"))
        assert host.run(2, (index, count)) == ([{"measured": 3}, {"measured": 4}], 0)
        assert "GPU 1 |1/2 [red]" in host.lines
        parts += [shard.arguments[-1] for shard in host.shards]
        assert host.shards[0].arguments[:-2] == ("colocate", "plan.yaml")
    assert parts == [f"{number}/{2 * count}" for number in range(1, 2 * count + 1)]


@pytest.mark.parametrize("answer", ["", "no JSON", '{"error": {"message": "busy."}}'])
def test_gpu_without_an_answer_costs_no_other(answer: str, host_of: HostOf) -> None:
    """What was measured is told; that something failed is the exit code, and a line."""
    host = host_of(Child(answer, code=5), Child())
    assert host.run(2) == ([{"measured": 3}], 5)
    assert host.lines[-1].startswith("GPU 0: ")
    assert host.lines[-1].endswith(": its finished points are kept, the same command goes on")
    assert ("busy:" if "error" in answer else "ended with exit code 5 (see") in host.lines[-1]


@pytest.mark.parametrize(
    ("codes", "kind"),
    [((2, 2), InputError), ((8, 8), BusyError), ((2, 8), JobError), ((0, 0), JobError)],
)
def test_no_answer_at_all_is_an_error(
    codes: tuple[int, int], kind: type[AdvisorError], host_of: HostOf
) -> None:
    """There is nothing to show; where all ended alike, the command ends so too."""
    failed = '{"error": {"message": "x"}}'
    host = host_of(*(Child(failed, code=code) for code in codes))
    with pytest.raises(kind, match="no GPU finished its part"):
        host.run(2)


def test_process_that_cannot_be_started_ends_the_others(host_of: HostOf) -> None:
    """As Ctrl-C would, and they are waited for: each stops its jobs first."""
    host = host_of(Child(), Child())
    with pytest.raises(OSError, match="no more processes"):
        host.run(3)
    assert [child.signals for child in host.children] == [[signal.SIGTERM, 0]] * 2


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Shard]:
    """Two shards whose folders are there; nobody waits."""
    monkeypatch.setattr(fanout, "_POLL_S", 0)
    folders = [tmp_path / name for name in "12"]
    for folder in folders:
        folder.mkdir()
    return [
        Shard(name=f"shard-{folder.name}", folder=folder, arguments=(), cwd=tmp_path)
        for folder in folders
    ]


def answer(shard: Shard, code: int = 0) -> None:
    """What a shard leaves when it is done."""
    (shard.folder / "output").write_text(GOOD)
    shard.keep_answer(code)


def write(shard: Shard, text: str) -> None:
    """Go on with a shard's log."""
    with (shard.folder / "log").open("a") as log:
        log.write(text)


class Engine:
    """Does one thing at each look, and remembers the shards that were submitted."""

    def __init__(self, *looks: Callable[[], object], gone: Mapping[str, str] | None = None) -> None:
        self._looks, self._gone = iter(looks), gone or {}
        self.submitted: list[Shard] = []

    def __call__(self, shards: Sequence[Shard]) -> Ended:
        self.submitted += shards
        return self._ended

    def _ended(self) -> Mapping[str, str]:
        next(self._looks, lambda: None)()
        return self._gone


@pytest.mark.parametrize("gone", [{}, {"shard-1": "", "shard-2": ""}])
def test_answers_are_waited_for(shards: list[Shard], gone: dict[str, str]) -> None:
    """However late each is, also after its end: a network file system shows files late."""
    first, second = shards
    engine = Engine(lambda: None, lambda: answer(second), lambda: answer(first, 5), gone=gone)
    assert hand_out(shards, engine, print) == gone
    assert engine.submitted == shards
    assert [shard.answer() for shard in shards] == [(5, {"measured": 3}), (0, {"measured": 3})]


def test_a_shard_that_has_answered_is_not_submitted(shards: list[Shard]) -> None:
    """As after a command that was stopped when one of its shards was done."""
    answer(shards[0])
    engine = Engine(lambda: answer(shards[1]))
    hand_out(shards, engine, print)
    assert engine.submitted == shards[1:]


def test_a_shard_that_was_given_up_is_not_waited_for(
    shards: list[Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine says why, or nothing."""
    monkeypatch.setattr(fanout, "_LATE_S", 0)
    gone = {shards[0].name: "the node died", shards[1].name: ""}
    assert hand_out(shards, Engine(gone=gone), print) == gone


def test_whole_lines_are_passed_on_as_they_come(shards: list[Shard]) -> None:
    one, two = shards
    lines: list[str] = []
    engine = Engine(
        lambda: write(one, "on node-7, GPU 0\n1/"),
        lambda: write(one, "2 triad\n"),
        lambda: answer(one),
        lambda: (write(two, "1/1 gemm\n"), answer(two)),
    )
    hand_out(shards, engine, lines.append)
    assert lines == [
        "shard-1 |on node-7, GPU 0",
        "shard-1 |1/2 triad",
        "1 of 2 shards done",
        "shard-2 |1/1 gemm",
        "2 of 2 shards done",
    ]


def test_ctrl_c_ends_all(shards: list[Shard], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends its jobs in the safe order, and is waited for."""
    child = Child()
    monkeypatch.setattr(Shard, "start", lambda *_: child)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    write(shards[0], "starting\n")
    (shards[0].folder / "output").touch()
    with pytest.raises(KeyboardInterrupt), on_this_host(["0"]) as submit:
        hand_out(shards[:1], submit, interrupt)
    assert child.signals == [signal.SIGTERM, 0]


def test_a_node_that_cannot_do_a_shard_says_what_is_missing(shards: list[Shard]) -> None:
    """A folder that it does not see, or a GPU that nobody gave."""
    with pytest.raises(InputError, match="names one"):
        shards[0].run({"CUDA_VISIBLE_DEVICES": ""})
    shards[0].folder.rmdir()
    with pytest.raises(InputError, match=r"has no folder .*set ADVISOR_HOME"):
        shards[0].run({"CUDA_VISIBLE_DEVICES": UUID})
