"""What the agents of Kubernetes and of Slurm share: meters, energy, overlaps, reports; no GPU."""

import os
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import given, strategies as st
from reading import some

from advisor.client import ApiError, ProfilePoints, UnreachableError
from advisor.core.gpu import PERCENTAGE, Gpu
from advisor.core.records import (
    SETTLE_S,
    UNCOUNTED_UNIT,
    WATCHED,
    Observation,
    Record,
    SoloPoint,
)
from advisor.core.telemetry import (
    ENERGY_GPU,
    POWER_GPU,
    Readings,
    TelemetrySource,
    channels_of,
)
from advisor.errors import PartitionError, SourceError
from advisor.launch.meter import Metered
from advisor.launch.spec import State
from advisor.runtime.backend import MpsBackend, Sight, VisibleGpu
from advisor.runtime.processes import wait_until
from advisor_node import room
from advisor_node.room import (
    GONE_S,
    UNSEEN_S,
    GpuUsers,
    ObservationQueue,
    Overlap,
    Overlaps,
    ProgressReading,
    Reference,
    ReferenceCache,
    Room,
    Tenant,
    TenantMeter,
    TenantProof,
)
from advisor_node.slurm import agent
from advisor_node.slurm.agent import GpuFolder, SlurmJob, UserDaemon

UID, OTHER, THIRD = "11", "12", "13"
SMALL = st.floats(0, 1e6, allow_nan=False)


# Progress files


@given(st.binary(max_size=600))
def test_any_bytes_are_read(data: bytes) -> None:
    assert (ProgressReading.parse(data) is None) == (len(data) < 8)


# What is known of jobs


def solo(share: float, rate: float, **more: Any) -> SoloPoint:
    told: dict[str, Any] = {"power_w": 400.0, "idle_power_w": 80.0} | more
    return SoloPoint(
        job="gemm", share_percent=share, rate=rate, gpu_model="H", gpu_uuid="GPU-1", window_s=5.0,
        started_at="2026-01-01T00:00:00Z", run="r", rate_unit="images", **told,
    )  # fmt: skip


def test_a_reference_is_of_good_points_alone() -> None:
    whole = [solo(100, rate) for rate in (9, 10, 11)]
    found = Reference.of([*whole, solo(50, 6), solo(50, 1, flags=("failed",))])
    assert (found.rate, found.rate_unit) == (10, "images")
    assert (found.power_w, found.idle_power_w) == (400, 80)
    assert [found.rate_at(share) for share in (50, 75, 100, 20)] == [6, 8, 10, None]
    assert Reference.of([solo(50, 6)]) == Reference()


def test_a_service_that_is_down_is_asked_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    known = ProfilePoints(
        job="gemm", gpu_models=("H",), source="stored", points=(solo(100, 10),), next=None
    )
    profiles = Mock(side_effect=[known, UnreachableError("down")])
    monkeypatch.setattr("advisor_node.room.time.monotonic", lambda: now_s[0])
    references = ReferenceCache(profiles)
    for now_s[0] in (0.0, 30.0, 70.0, 90.0):
        assert references.of("gemm", "H").rate == 10
    assert profiles.call_count == 2


# What jobs do


def tenant(uid: str = UID, share_text: str = "50", state: State = "running") -> Tenant:
    return Tenant(uid=uid, job="gemm", share_text=share_text, state=state)


def progress(steps: int) -> ProgressReading:
    return some(ProgressReading.parse(steps.to_bytes(8, "little")))


HERE = GpuUsers(clients=frozenset({1}))


def test_progress_without_a_process_on_the_gpu_is_noticed() -> None:
    meter = TenantMeter(tenant())
    for second in range(int(UNSEEN_S) + 3):
        meter.look(second + 1.0, progress(second), GpuUsers())
    assert meter.unseen
    meter.look(100, progress(100), HERE)
    assert not meter.unseen
    for second in range(60):
        meter.look(101.0 + second, progress(100), GpuUsers())
    assert not meter.unseen


def test_a_limit_that_was_broken_stays_broken() -> None:
    meter = TenantMeter(tenant())
    told = [meter.take_proof(TenantProof(proven)) for proven in (None, True, False, False, True)]
    assert told == [False, False, True, False, False]
    assert meter.limit_broken


def at_300_w(now_s: float) -> Metered:
    return Metered(300 * now_s, now_s, now_s)


def together(
    duration_s: int,
    read: Callable[[float], Metered] = at_300_w,
    share_text: str = "50",
) -> Overlap[Tenant]:
    """Two jobs that make 10 and 20 steps a second on a GPU of 300 W, for so long."""
    meters = [TenantMeter(tenant(uid, share_text)) for uid in (UID, OTHER)]
    overlaps: list[Overlap[Tenant]] = []
    for meter in meters:
        meter.reference = Reference(rate=40.0, power_w=400.0, rates=((25, 10.0), (100, 40.0)))
        meter.take_proof(TenantProof(True, 66))
    for now_s in range(duration_s + 1):
        for meter, rate in zip(meters, (10, 20), strict=True):
            meter.look(now_s, progress(1 + now_s * rate), HERE)
        if overlaps:
            overlaps[0].add(now_s, read(now_s))
        else:
            gpu = Gpu(uuid="GPU-1", model="H", units_total=132)
            overlaps.append(Overlap(gpu, meters, now_s, read(now_s)))
    return overlaps[0]


def test_an_overlap_is_observed_as_a_launch_is() -> None:
    seen = together(20).observe("node-1", "slurm")
    assert [part.rate for part in seen.parts] == pytest.approx([10, 20])
    assert (seen.power_w, seen.energy_j, seen.overlap_s) == pytest.approx((300, 6000, 20))
    assert seen.settled_s == pytest.approx(20 - SETTLE_S)
    assert seen.work_per_joule == pytest.approx((10 / 40 + 20 / 40) / 300)
    assert seen.energy_saved == pytest.approx(1 - 300 / (400 * 0.25 + 400 * 0.5))
    assert (seen.state, seen.flags, seen.host) == ("stopped", (), "node-1")


def test_energy_that_was_missed_saves_nothing() -> None:
    seen = together(20, lambda now_s: at_300_w(min(now_s, 10))).observe("node-1", "slurm")
    assert (seen.power_w, seen.energy_j) == (pytest.approx(300), None)


@pytest.mark.parametrize(
    ("states", "state"), [(("finished", "running"), "finished"), (("failed", "finished"), "failed")]
)
def test_the_state_is_that_of_the_jobs(states: tuple[State, State], state: str) -> None:
    overlap = together(5)
    for meter, now in zip(overlap.meters, states, strict=True):
        meter.tenant = tenant(meter.tenant.uid, state=now)
    seen = overlap.observe("n", "slurm")
    assert seen.state == state
    assert sorted(part.ended_first for part in seen.parts) == sorted(
        one != "running" for one in states
    )


def test_doubts_become_flags() -> None:
    assert "not-settled" in together(2).observe("n", "slurm").flags
    overlap = together(20, share_text="25")
    overlap.meters[0].take_proof(TenantProof(False, why="x"))
    assert overlap.observe("n", "slurm").flags == ("limit-broken", "too-fast")
    overlap.meters[1].reference = Reference(rates=((25, 1000.0), (100, 4000.0)))
    assert "too-slow" in overlap.observe("n", "slurm").flags


@pytest.mark.parametrize(
    ("idle_s", "backlog_s", "rate", "settled_s", "flags"),
    [
        (0, 0, 60.0, 147, ()),
        # A cold start, then what has waited; its rate over 5 s comes down to the demand after it.
        (20, 20, 60.0, 102, ()),
        (0, 150, 100.0, 27, ("backlog",)),
    ],
)
def test_a_server_that_empties_a_queue_is_in_no_mean_of_its_demand(
    idle_s: int, backlog_s: int, rate: float, settled_s: float, flags: tuple[str, ...]
) -> None:
    """As in a launch: for two minutes, and then what is seen is flagged."""
    meters = [TenantMeter(tenant(uid)) for uid in (UID, OTHER)]
    whole = solo(100, 60, offered_rate=60.0)
    for meter, points in zip(meters, ([solo(100, 10)], [whole]), strict=True):
        meter.reference, meter.proof = Reference.of(points), TenantProof(True, 66)
    answered = 1

    def go_on(now_s: int, rate: int) -> None:
        nonlocal answered
        answered += rate
        for meter, count in zip(meters, (1000 + 10 * now_s, answered), strict=True):
            meter.look(now_s, progress(count), HERE)

    for now_s in range(-10, 1):
        go_on(now_s, 60)
    overlap = Overlap(Gpu(uuid="GPU-1", model="H", units_total=132), meters, 0.0, at_300_w(0))
    for now_s in range(1, 151):
        go_on(now_s, 0 if now_s <= idle_s else 100 if now_s <= idle_s + backlog_s else 60)
        overlap.add(now_s, at_300_w(now_s))
    seen = overlap.observe("n", "slurm")
    assert [part.rate for part in seen.parts] == pytest.approx([10, rate], rel=0.05)
    assert seen.settled_s == pytest.approx(settled_s, abs=6)
    assert [flag for flag in seen.flags if flag == "backlog"] == [*flags]


def test_who_joins_and_leaves_parts_observations() -> None:
    """Two, then three, then the two again: each stretch is one of its own, with its own name."""
    meters = [TenantMeter(tenant(uid)) for uid in (UID, OTHER, THIRD)]
    overlaps = Overlaps[Tenant](Gpu(uuid="GPU-1", model="H", units_total=132), "n", "k8s")
    seen: list[Observation] = []
    for now_s in range(61):
        there = meters[: 3 if 20 <= now_s < 40 else 2 if now_s < 60 else 1]
        for meter in meters:
            users = HERE if meter in there else GpuUsers()
            meter.look(now_s, progress(1 + 10 * now_s), users)
        present = frozenset(meter.tenant.uid for meter in there)
        seen += overlaps.follow(float(now_s), there, present, at_300_w(now_s))
    assert [len(one.parts) for one in seen] == [2, 3, 2]
    assert len({one.launch_id for one in seen}) == 3
    assert [one.overlap_s for one in seen] == [19, 19, 19]


def test_an_overlap_ends_with_a_job_and_not_with_a_pause() -> None:
    """Schedulers learn of the end of a process later; a restart ends nothing at once."""
    overlap, last_s = together(5), 5
    both = overlap.uids
    assert not overlap.has_ended(last_s, both)
    overlap.meters[0].working = False
    assert not overlap.has_ended(last_s + 1, both)
    assert overlap.has_ended(last_s + GONE_S + 1, both)
    assert overlap.has_ended(last_s + 1, both - {overlap.meters[0].tenant.uid})
    overlap.meters[0].tenant = tenant(overlap.meters[0].tenant.uid, state="finished")
    assert overlap.has_ended(last_s + 1, both)


# Reports


def test_observations_wait_for_a_service_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("advisor_node.room.time.monotonic", lambda: now_s[0])
    refused = ApiError("bad-input", "no", status=422)
    send = Mock(side_effect=[UnreachableError("down"), None, refused, None])
    waiting = ObservationQueue(Mock(observe=send))
    for n in range(3):
        waiting.add(together(5).observe(f"n{n}", "slurm"))
    waiting.flush()
    waiting.flush()
    assert (waiting.waiting, send.call_count) == (3, 1)
    now_s[0] += 60
    waiting.flush()
    sent = [one.host for call in send.call_args_list for one in call.args[0]]
    assert sent == ["n0", "n0", "n1", "n2"]
    assert (waiting.sent, waiting.lost, waiting.waiting) == (2, 1, 0)


def test_a_queue_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_MOST_WAITING", 2)
    waiting = ObservationQueue(Mock())
    one = together(5).observe("n", "slurm")
    for _ in range(5):
        waiting.add(one)
    assert (waiting.waiting, waiting.lost) == (2, 3)


def test_what_is_seen_alone_goes_to_the_points() -> None:
    service, seen = Mock(), solo(100, 10)
    waiting = ObservationQueue(service)
    waiting.add(seen)
    waiting.flush()
    service.import_points.assert_called_once_with([seen])
    assert (service.observe.call_count, waiting.sent) == (0, 1)


def test_a_count_that_starts_again_goes_on() -> None:
    meter = TenantMeter(tenant())
    for second, steps in enumerate((8, 9, 10, 1, 2, 3)):
        meter.look(float(second), progress(steps), HERE)
    assert meter.steps == 13


def test_progress_that_cannot_be_read_is_unknown_and_not_zero() -> None:
    meter, read = TenantMeter(tenant()), progress(0)
    for second in range(8):
        meter.look(float(second), replace(read, steps=second), HERE)
    assert meter.rate() == pytest.approx(1)
    meter.look(8.0, replace(read, steps=7, fault="its metrics page is gone"), HERE)
    assert (meter.rate(), meter.unread) == (None, "its metrics page is gone")
    meter.look(9.0, replace(read, steps=9), HERE)
    assert meter.rate()


GPU = Gpu(uuid="GPU-1", model="H", units_total=132)


def unreachable(_job: str, _model: str) -> ProfilePoints:
    raise UnreachableError("down")


@dataclass
class Node:
    """A GPU, the processes on it, and the moment.

    Attributes:
        sight_s: How long each of the next answers of the daemon takes.
        power_w: That its energy counter grows by; None: nothing reads it.
    """

    folder: GpuFolder
    room: Room[SlurmJob]
    clients: set[int] = field(default_factory=set[int])
    outside: set[int] = field(default_factory=set[int])
    jobs: list[SlurmJob] = field(default_factory=list[SlurmJob])
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    now_s: float = 0.0
    sight_s: list[float] = field(default_factory=list[float])
    power_w: float | None = None

    def read(self, names: Collection[str]) -> Readings:
        if self.power_w is None:
            raise SourceError("nothing answers")
        read = dict.fromkeys(names, 40.0) | {POWER_GPU: self.power_w}
        return read | {ENERGY_GPU: self.power_w * self.now_s}

    channels = channels_of([POWER_GPU, "counter.sm_active"])

    def start_window(self) -> None:
        pass

    def processes_memory_mib(self, _pids: Collection[int]) -> float | None:
        return None

    def close(self) -> None:
        pass

    def process(self, **variables: str) -> int:
        """A process that lives as long as the test."""
        self.processes.append(subprocess.Popen(["sleep", "100"], env=variables))
        pid = self.processes[-1].pid
        # For a moment after its start a process shows no variables.
        assert wait_until(
            lambda: bool(not variables or Path(f"/proc/{pid}/environ").read_bytes()), 10
        )
        return pid

    def run(self, number: str, name: str, share: str = "50", **variables: str) -> int:
        """A job with one process under its share; its process number."""
        folder = self.folder.path / "jobs" / number
        folder.mkdir(parents=True)
        self.jobs.append(SlurmJob(uid=number, job=name, share_text=share, folder=folder))
        limit = {
            "SLURM_JOB_ID": number,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder.pipe_dir),
            PERCENTAGE: share,
            "CUDA_VISIBLE_DEVICES": "0",
        }
        pid = self.process(**(limit | variables))
        self.clients.add(pid)
        return pid

    def look(self, seconds: int, step: int = 10) -> list[Record]:
        """Look once a second, while each job makes `step` steps."""
        seen: list[Record] = []
        for _ in range(seconds):
            self.now_s += 1
            for job in self.jobs:
                count = 1 + int(self.now_s * step)
                job.progress_file.write_bytes(count.to_bytes(8, "little"))
            seen += self.room.look(self.jobs)
        return seen

    def end(self, number: str, status: str) -> None:
        (self.folder.path / "ended").mkdir(exist_ok=True)
        (self.folder.path / "ended" / number).write_text(status)
        self.jobs = [job for job in self.jobs if job.uid != number]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    folder = GpuFolder(path=tmp_path / "gpu0-0", index=0, user=os.geteuid())
    monkeypatch.setattr(agent.socket, "gethostname", lambda: "n1")
    daemon = UserDaemon(GPU, folder, {}, tuple)
    references = ReferenceCache(unreachable)
    made = Node(folder, cast("Room[SlurmJob]", None))
    made.room = Room(
        daemon, cast("TelemetrySource", made), daemon.tenancy(), references,
        lambda: made.now_s,
    )  # fmt: skip

    def sight(_: MpsBackend) -> Sight:
        made.now_s += made.sight_s.pop(0) if made.sight_s else 0.0
        return Sight(frozenset(made.clients | made.outside), frozenset(made.clients))

    def granted(environment: Mapping[str, str], _user: int | None) -> list[VisibleGpu]:
        # Of 100 % the daemon sets no limit at all.
        percent = float(environment.get(PERCENTAGE, "100"))
        return [VisibleGpu(GPU.uuid, int(132 * percent / 100), mps=True)]

    monkeypatch.setattr(MpsBackend, "sight", sight)
    monkeypatch.setattr(room, "look", granted)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def observation(seen: Sequence[Record]) -> Observation:
    """The only one."""
    [one] = seen
    assert isinstance(one, Observation)
    return one


@pytest.fixture
def pair(node: Node) -> Node:
    """The same with two jobs."""
    node.run("1", "gemm")
    node.run("2", "bert")
    return node


def test_a_pair_is_observed_when_one_has_ended(pair: Node) -> None:
    assert pair.look(20) == []
    pair.end("1", "0")
    seen = observation(pair.look(1))
    assert (seen.launch_id, seen.jobs, seen.host) == ("slurm-1-2", ("bert", "gemm"), "n1")
    assert [part.rate for part in seen.parts] == pytest.approx([10, 10])
    assert [part.ended_first for part in seen.parts] == [False, True]
    assert (seen.state, seen.flags, seen.power_w) == ("finished", (), None)
    assert seen.settled_s == pytest.approx(19 - SETTLE_S)
    pair.end("2", "0")
    assert pair.look(1) == []
    assert not pair.room.meters


@pytest.fixture
def lone(node: Node) -> Node:
    """The same with a job that has all of the GPU, which draws 300 W."""
    node.power_w = 300.0
    node.run("1", "gemm", "100")
    return node


def test_a_job_with_all_of_a_gpu_is_kept_as_watched_until_another_comes(lone: Node) -> None:
    """By its count where it has one; what it does under a limit or beside another is no solo."""
    seen = [point for point in lone.look(200) if isinstance(point, SoloPoint)]
    assert [(p.window_s, p.rate_unit, p.host) for p in seen] == [
        (pytest.approx(60), "steps", "n1"), (pytest.approx(120), "steps", "n1"),
    ]  # fmt: skip
    assert len({point.point_id for point in seen}) == 1
    last = seen[-1]
    assert (last.job, last.flags, last.share_percent) == ("gemm", (WATCHED,), 100)
    assert (last.rate, last.power_w, last.sm_active_percent) == pytest.approx((10, 300, 40))
    lone.run("2", "bert", "20")
    assert lone.look(200) == []
    lone.end("1", "0")
    assert [type(one) for one in lone.look(200)] == [Observation], "20 % is not the whole GPU"


def test_nothing_is_kept_of_a_job_that_was_profiled(
    lone: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Reference.of([solo(100, 10), solo(50, 6)])
    monkeypatch.setattr(ReferenceCache, "of", Mock(return_value=known))
    assert lone.look(100) == []


def test_a_job_that_counts_nothing_is_kept_by_its_watts(lone: Node) -> None:
    (lone.jobs[0].folder / "progress").mkdir()
    seen = list[Record]()
    for lone.now_s in map(float, range(1, 70)):
        seen += lone.room.look(lone.jobs)
    [point] = seen
    assert isinstance(point, SoloPoint)
    assert (point.rate, point.rate_unit, point.power_w) == (1.0, UNCOUNTED_UNIT, 300.0)
    whole = [solo(100, 10), solo(100, 30, flags=(WATCHED,))]
    assert (Reference.of(whole).rate, Reference.of(whole[1:]).rate) == (10, 30)
    assert Reference.of([replace(point, job="gemm")]) == Reference(), "a window is no rate"


def test_daemon_that_answers_late_makes_no_power(pair: Node) -> None:
    """Between the clock and the counter it may take seconds, and so may a proof."""
    pair.power_w = 300.0
    pair.look(4)
    pair.sight_s = [0.0] * 5 + [4.0]
    pair.look(6)
    pair.end("1", "0")
    seen = observation(pair.look(1))
    assert seen.power_w == pytest.approx(300)
    assert [part.rate for part in seen.parts] == pytest.approx([10, 10], rel=0.05)
    assert seen.energy_j == pytest.approx(300 * seen.overlap_s)


def test_a_percentage_that_was_changed_is_found(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.run("1", "gemm", **{PERCENTAGE: "90"})
    node.run("2", "bert")
    node.look(10)
    node.end("1", "0")
    assert observation(node.look(1)).flags == ("limit-broken",)
    [said] = caplog.messages
    assert "do not carry the variables of its share of 50 %" in said


def test_somebody_else_on_the_gpu_is_found(pair: Node, caplog: pytest.LogCaptureFixture) -> None:
    pair.outside.add(pair.process())
    pair.look(1)
    pair.outside.clear()
    pair.look(10)
    assert not [message for message in caplog.messages if "which are of no job" in message]
    pair.clients.add(pair.process(SLURM_JOB_ID="3"))
    pair.look(5)
    pair.end("1", "0")
    assert observation(pair.look(1)).flags == ("limit-broken",)
    assert len([message for message in caplog.messages if "which are of no job" in message]) == 1


def test_a_daemon_that_is_gone_stops_nothing(
    pair: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def sight(_: MpsBackend) -> Sight:
        raise PartitionError("no MPS daemon answers")

    monkeypatch.setattr(MpsBackend, "sight", sight)
    assert pair.look(3) == []
    [said] = caplog.messages
    assert "no MPS daemon answers" in said
    pair.end("1", "0")
    pair.end("2", "0")
    assert pair.look(1) == []
    assert not pair.room.meters
