"""One command on several GPUs of a host: parts of the plan and of the cores, answers, ends."""

import io
import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from advisor.errors import AdvisorError, BusyError, InputError, JobError
from advisor_cli.measure import several_gpus
from advisor_cli.measure.several_gpus import run_on_each

GOOD = json.dumps({"measured": 3})


@dataclass
class Child:
    """A process that has said all it has to say."""

    answer: str = GOOD
    says: str = ""
    code: int = 0
    gone: bool = False
    signals: list[int] = field(default_factory=list)
    waits: int = 0

    def __post_init__(self) -> None:
        self.stdout, self.stderr = io.StringIO(self.answer), io.StringIO(self.says)

    def send_signal(self, number: int) -> None:
        if not self.gone:  # as Popen, which sends nothing to one that has ended
            self.signals.append(number)

    def wait(self) -> int:
        self.waits += 1
        return self.code


@dataclass
class Host:
    """Starts such processes, and remembers their command lines and cores."""

    children: list[Child]
    arguments: list[list[str]] = field(default_factory=list)
    cores: list[frozenset[int]] = field(default_factory=list)
    text: io.StringIO = field(default_factory=io.StringIO)

    def start(self, arguments: Sequence[str], cores: frozenset[int]) -> Child:
        if len(self.arguments) == len(self.children):
            raise OSError("no more processes")
        self.arguments.append(list(arguments))
        self.cores.append(cores)
        return self.children[len(self.arguments) - 1]

    def run(self, gpus: Sequence[str], shard: tuple[int, int] = (1, 1)) -> tuple[list[object], int]:
        """What the command gives."""
        console = Console(file=self.text, width=200)
        answers, code = run_on_each(gpus, shard, ["colocate", "plan.yaml"], console)
        return [*answers], code


HostOf = Callable[..., Host]


@pytest.fixture
def host_of(monkeypatch: pytest.MonkeyPatch) -> HostOf:
    """Makes a host of physical cores (two logical ones each) on which these children run."""

    def make(*children: Child, cores: int = 8) -> Host:
        host = Host(list(children))
        monkeypatch.setattr(several_gpus, "_start", host.start)
        monkeypatch.setattr(several_gpus, "physical_cores", lambda: groups(cores))
        return host

    return make


def groups(count: int) -> list[frozenset[int]]:
    """Physical cores as Linux numbers them with hyperthreads."""
    return [frozenset({core, core + count}) for core in range(count)]


# cores


@given(gpus=st.integers(1, 16), cores=st.integers(1, 64))
def test_each_gpu_has_as_many_physical_cores_of_its_own(gpus: int, cores: int) -> None:
    """Launch-bound jobs on two GPUs do not take turns on a core, nor on its hyperthreads."""
    with pytest.MonkeyPatch.context() as patch:
        host = Host([Child() for _ in range(gpus)])
        patch.setattr(several_gpus, "_start", host.start)
        patch.setattr(several_gpus, "physical_cores", lambda: groups(cores))
        host.run([str(number) for number in range(gpus)])
    every = frozenset[int]().union(*groups(cores))
    if cores < gpus:
        assert host.cores == [every] * gpus
        return
    assert {len(part) for part in host.cores} == {2 * (cores // gpus)}
    for group in groups(cores):
        assert sum(bool(part & group) for part in host.cores) <= 1


# command lines


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_of_all_hosts_and_gpus_are_the_plan(count: int, host_of: HostOf) -> None:
    """Hosts that measure one part each, with two GPUs each, leave nothing out."""
    parts: list[str] = []
    for index in range(1, count + 1):
        host = host_of(Child(), Child())
        host.run(["0", "1"], (index, count))
        parts += [arguments[-2] for arguments in host.arguments]
    assert parts == [f"{number}/{2 * count}" for number in range(1, 2 * count + 1)]


def test_each_gpu_has_its_options_and_cores_and_gives_its_answer(host_of: HostOf) -> None:
    """Options come last and win; cores are neighbours, which share caches and a memory bus."""
    host = host_of(Child(), Child(json.dumps({"measured": 4})), cores=5)
    assert host.run(["GPU-a", "1"]) == ([{"measured": 3}, {"measured": 4}], 0)
    assert host.cores == [{0, 1, 5, 6}, {2, 3, 7, 8}]
    assert [child.signals for child in host.children] == [[], []]
    assert host.arguments == [
        ["colocate", "plan.yaml", "--gpu", "GPU-a", "--shard", "1/2", "--json"],
        ["colocate", "plan.yaml", "--gpu", "1", "--shard", "2/2", "--json"],
    ]


# answers


@pytest.mark.parametrize("answer", ["", "no JSON", '{"error": {"code": "busy"}}'])
def test_gpu_without_an_answer_costs_no_other(answer: str, host_of: HostOf) -> None:
    """What was measured is told; that something failed is the exit code."""
    host = host_of(Child(answer, code=8), Child(code=5))
    assert host.run(["0", "1"]) == ([{"measured": 3}], 8)


def test_killed_process_is_a_failure(host_of: HostOf) -> None:
    """It is told, with the code that a shell gives it, and how to go on."""
    host = host_of(Child(), Child("", code=-9))
    _, code = host.run(["0", "GPU-b"])
    assert code == 137
    assert host.text.getvalue() == (
        "GPU GPU-b gave no answer and ended with exit code 137: "
        "its finished points are kept, the same command goes on\n"
    )


@pytest.mark.parametrize(
    ("codes", "kind"),
    [((2, 2), InputError), ((8, 8), BusyError), ((2, 8), JobError), ((0, 0), JobError)],
)
def test_no_answer_at_all_is_an_error(
    codes: tuple[int, int], kind: type[AdvisorError], host_of: HostOf
) -> None:
    """There is nothing to show; where all ended alike, the command ends so too."""
    host = host_of(*(Child("", code=code) for code in codes))
    with pytest.raises(kind, match="no GPU finished its part"):
        host.run(["0", "1"])
    assert len(host.text.getvalue().splitlines()) == 2
    with pytest.raises(typer.Exit) as ended:  # the one code is no error's of ours
        host_of(Child("", code=-9), Child("", code=-9)).run(["0", "1"])
    assert ended.value.exit_code == 137


def test_lines_are_told_with_their_gpu(host_of: HostOf) -> None:
    """As they are: brackets of a message are no markup."""
    host = host_of(Child(says="  1/5 [red]fft\n  2/5 gemm\n"), Child(says="starting\n"))
    host.run(["0", "GPU-b"])
    assert sorted(host.text.getvalue().splitlines()) == [
        "GPU 0 |  1/5 [red]fft",
        "GPU 0 |  2/5 gemm",
        "GPU GPU-b |starting",
    ]


# ends


def test_process_that_cannot_be_started_ends_the_others(host_of: HostOf) -> None:
    """As Ctrl-C would, and they are waited for: each stops its jobs first."""
    host = host_of(Child(), Child())
    with pytest.raises(OSError, match="no more processes"):
        host.run(["0", "1", "2"])
    assert [child.signals for child in host.children] == [[signal.SIGTERM]] * 2
    assert [child.waits for child in host.children] == [1, 1]


def test_interrupt_ends_all(host_of: HostOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is gone already does not keep the others from being told."""

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    host = host_of(Child(gone=True), Child())
    monkeypatch.setattr(several_gpus, "_listen", interrupt)
    with pytest.raises(KeyboardInterrupt):
        host.run(["0", "1"])
    assert [child.signals for child in host.children] == [[], [signal.SIGTERM]]
    assert [child.waits for child in host.children] == [1, 1]
