"""The parts of a node's agent that need no GPU, no daemon and no Kubernetes."""

import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_node_api import pod

from advisor.client import ApiError, ClientError, Profile, UnreachableError
from advisor.core.gpu import Gpu
from advisor.core.observations import Observation
from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.launch.monitor.account import SETTLE_S
from advisor.progress import Progress as JobProgress
from advisor_kubernetes.agent.cgroups import pod_in
from advisor_kubernetes.agent.pods import SharedPod, read_pod
from advisor_kubernetes.agent.progress_files import make_file, progress_file
from advisor_node.metering import reports
from advisor_node.metering.energy import Load, divide_energy
from advisor_node.metering.meters import UNSEEN_S, TenantMeter
from advisor_node.metering.overlaps import GONE_S, Overlap
from advisor_node.metering.progress_files import Progress, parse_progress, read_progress
from advisor_node.metering.proof import GpuUsers, Proof
from advisor_node.metering.references import Reference, References, reference_of
from advisor_node.metering.reports import Reports

UID, OTHER = "0f8b1a52-3c0e-4d57-9d3c-5b1e8a7f6c21", "1f8b1a52-3c0e-4d57-9d3c-5b1e8a7f6c21"
SMALL = st.floats(0, 1e6, allow_nan=False)


# Pods


def test_a_pod_is_read_as_the_chooser_has_left_it() -> None:
    """With the share exactly as its containers see it."""
    raw = pod(
        UID, node="n", gpu="GPU-1", job="gemm", share="38.5", securityContext={"runAsUser": 7}
    )
    found = read_pod(raw)
    assert found is not None
    assert (found.share_text, found.share.percent, found.user) == ("38.5", 38.5, 7)
    assert (found.namespace, found.name, found.over) == ("team", "gemm-pod", False)


@pytest.mark.parametrize("name", ["job", "share-percent", "gpu-uuid"])
def test_a_pod_without_a_gpu_of_ours_is_left_alone(name: str) -> None:
    """One that runs alone without a limit, on a claim, or that only has the label."""
    raw = pod(UID, node="n", gpu="GPU-1", job="gemm", share="30")
    del raw["metadata"]["annotations"][f"advisor.dev/{name}"]
    assert read_pod(raw) is None


@pytest.mark.parametrize(
    "wrong",
    [{"share": "0"}, {"share": "many"}, {"share": "nan"}, {"job": "../x"}, {"uid": "../.."}],
)
def test_annotations_that_nobody_can_have_chosen_are_refused(wrong: dict[str, str]) -> None:
    """0 is no limit at all for the driver, and the uid becomes a path."""
    told: dict[str, Any] = {"uid": UID, "job": "gemm", "share": "30"} | wrong
    with pytest.raises(InputError, match="were not written"):
        read_pod(pod(told["uid"], node="n", gpu="GPU-1", job=told["job"], share=told["share"]))


UNDERSCORED = UID.replace("-", "_")


@pytest.mark.parametrize(
    "line",
    [
        f"0::/kubepods/besteffort/pod{UID}/abc",
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-abc.scope",
        f"0::/../../kubepods-burstable-pod{UNDERSCORED}.slice/crio-abc.scope",
        f"11:devices:/kubepods/burstable/pod{UID}/abc\n10:memory:/kubepods/burstable/pod{UID}/abc",
    ],
)
def test_the_pod_of_a_process_is_in_its_control_group(line: str) -> None:
    """Of both drivers and both versions, seen from the host or from another namespace."""
    assert pod_in(line) == UID


@pytest.mark.parametrize("line", ["", "0::/", "0::/user.slice/user-0.slice", "0::/podman/abc"])
def test_a_process_of_the_host_is_of_no_pod(line: str) -> None:
    """Nor is one of a container that Kubernetes does not know."""
    assert pod_in(line) is None


# Energy


@given(
    energy_j=SMALL,
    duration_s=st.floats(0.1, 1e4),
    idle_w=st.none() | st.floats(0, 500),
    loads=st.lists(
        st.builds(
            Load,
            units=st.floats(1, 132),
            relative_speed=st.none() | st.floats(0, 2),
            solo_power_w=st.none() | st.floats(0, 1000),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_parts_of_the_energy_add_up(
    energy_j: float, duration_s: float, idle_w: float | None, loads: Sequence[Load]
) -> None:
    """Nothing is lost, nothing is counted twice, and nobody gives energy back."""
    parts = divide_energy(energy_j, duration_s, idle_w, loads)
    assert math.isclose(sum(parts), energy_j, rel_tol=1e-9, abs_tol=1e-9)
    assert all(part >= 0 for part in parts)


def test_energy_is_divided_by_size_and_by_use() -> None:
    """80 W for 10 s by SMs, the rest by speed times power above idle."""
    standing = Load(units=33, relative_speed=0.0, solo_power_w=480)
    busy = Load(units=99, relative_speed=0.5, solo_power_w=480)
    assert divide_energy(3000, 10, 80, [standing, busy]) == [200, 2800]
    assert divide_energy(3000, 10, None, [standing, busy]) == [750, 2250]
    assert divide_energy(3000, 10, 80, [Load(units=33), busy]) == [750, 2250]
    assert divide_energy(3000, 10, 80, [busy]) == [3000]
    assert divide_energy(3000, 10, 80, []) == []


# Progress files


def test_a_job_writes_into_the_file_that_was_made_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library of the job on one side, the agent on the other."""
    make_file(tmp_path / "pods", UID, None)
    file = tmp_path / "pods" / UID / "progress"
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(file))
    progress = JobProgress()
    progress.add(3, value=math.nan)
    make_file(tmp_path / "pods", UID, None)  # a list that comes again changes nothing
    found = read_progress(progress_file(tmp_path / "pods", UID))
    assert found is not None
    assert (found.steps, found.reported.not_finite) == (3, 1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666
    assert stat.S_IMODE((tmp_path / "pods").stat().st_mode) == 0o711


def test_a_file_of_a_user_is_closed_to_others(tmp_path: Path) -> None:
    """Where the pod says who it is."""
    make_file(tmp_path, UID, os.geteuid())
    assert stat.S_IMODE((tmp_path / UID).stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / UID / "progress").stat().st_mode) == 0o600


def test_nothing_in_a_folder_of_a_pod_is_followed(tmp_path: Path) -> None:
    """A link to a file of the host, a pipe that would block, a folder, nothing."""
    folder = tmp_path / UID
    folder.mkdir()
    assert read_progress(progress_file(tmp_path, UID)) is None
    place = folder / "progress"
    place.symlink_to("/etc/passwd")
    assert read_progress(progress_file(tmp_path, UID)) is None
    place.unlink()
    os.mkfifo(place)
    assert read_progress(progress_file(tmp_path, UID)) is None
    place.unlink()
    place.mkdir()
    assert read_progress(progress_file(tmp_path, UID)) is None


@given(st.binary(max_size=600))
def test_any_bytes_are_read(data: bytes) -> None:
    """A pod writes what it likes."""
    found = parse_progress(data)
    assert (found is None) == (len(data) < 8)


# What is known of jobs


def solo(share: float, rate: float, **more: Any) -> SoloPoint:
    told: dict[str, Any] = {"power_w": 400.0, "idle_power_w": 80.0} | more
    return SoloPoint(
        job="gemm", share_percent=share, rate=rate, gpu_model="H", gpu_uuid="GPU-1", window_s=5.0,
        started_at="2026-01-01T00:00:00Z", run="r", rate_unit="images", **told,
    )  # fmt: skip


def test_a_reference_is_of_good_points_alone() -> None:
    """Medians at the whole GPU, and rates between shares."""
    points = [
        solo(100, 9),
        solo(100, 10),
        solo(100, 11),
        solo(50, 6),
        solo(50, 1, flags=("failed",)),
    ]
    found = reference_of(points)
    assert (found.rate, found.rate_unit, found.power_w, found.idle_power_w) == (
        10,
        "images",
        400,
        80,
    )
    assert found.rates == ((50, 6), (100, 10))
    assert [found.rate_at(share) for share in (50, 75, 100, 20)] == [6, 8, 10, None]
    assert reference_of([solo(50, 6)]) == Reference()


def test_a_service_that_is_down_is_asked_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was known stays known."""
    now_s, asked = [0.0], list[str]()
    answers: list[Profile | ClientError] = [
        Profile(job="gemm", gpu_models=("H",), source="stored", points=(solo(100, 10),), next=None),
        UnreachableError("down"),
    ]

    def profiles(job: str, _model: str) -> Profile:
        asked.append(job)
        answer = answers.pop(0)
        if isinstance(answer, ClientError):
            raise answer
        return answer

    monkeypatch.setattr("advisor_node.metering.references.time.monotonic", lambda: now_s[0])
    references = References(profiles)
    for at_s in (0.0, 30.0, 70.0, 90.0):
        now_s[0] = at_s
        assert references.of("gemm", "H").rate == 10
    assert len(asked) == 2


# What pods do


def shared(uid: str = UID, share: str = "50", phase: str = "Running") -> SharedPod:
    return SharedPod(
        uid=uid, namespace="team", name="p", job="gemm", share_text=share, gpu_uuid="GPU-1",
        phase=phase,
    )  # fmt: skip


def progress(steps: int) -> Progress:
    found = parse_progress(steps.to_bytes(8, "little"))
    assert found is not None
    return found


HERE = GpuUsers(clients=frozenset({1}))


def test_progress_without_a_process_on_the_gpu_is_noticed() -> None:
    """After a while, and not while the job only stands still."""
    meter = TenantMeter(shared())
    for second in range(int(UNSEEN_S) + 3):
        meter.look(second + 1.0, progress(second), GpuUsers())
    assert meter.unseen
    meter.look(100, progress(100), HERE)
    assert not meter.unseen
    for second in range(60):
        meter.look(101.0 + second, progress(100), GpuUsers())
    assert not meter.unseen


def test_a_limit_that_was_broken_stays_broken() -> None:
    """It is told once, whatever is proven later."""
    meter = TenantMeter(shared())
    told = [meter.take_proof(Proof(proven)) for proven in (None, True, False, False, True)]
    assert told == [False, False, True, False, False]
    assert meter.limit_broken


def together(
    first: SharedPod, second: SharedPod, duration_s: float
) -> tuple[Overlap[SharedPod], float]:
    """Two pods that make 10 and 20 steps a second on a GPU of 300 W; the last of these moments."""
    meters = [TenantMeter(first), TenantMeter(second)]
    for meter in meters:
        meter.reference = Reference(rate=40.0, power_w=400.0, rates=((25, 10.0), (100, 40.0)))
        meter.take_proof(Proof(True, 66))
    overlap, now_s = None, 0.0
    gpu = Gpu(uuid="GPU-1", model="H", units_total=132)
    while now_s <= duration_s:
        for meter, rate in zip(meters, (10, 20), strict=True):
            meter.look(now_s, progress(1 + int(now_s * rate)), HERE)
        if overlap is None:
            overlap = Overlap(gpu, meters, now_s, 300 * now_s)
        else:
            overlap.add(now_s, 300 * now_s)
        now_s += 1
    assert overlap is not None
    return overlap, now_s - 1


def test_an_overlap_is_observed_as_a_launch_is() -> None:
    """Rates and power after the first seconds, energy of all of it."""
    overlap, _ = together(shared(UID), shared(OTHER), 20)
    seen = overlap.observe("node-1", "k8s")
    assert [part.rate for part in seen.parts] == pytest.approx([10, 20])
    assert (seen.power_w, seen.energy_j, seen.overlap_s) == pytest.approx((300, 6000, 20))
    assert seen.settled_s == pytest.approx(20 - SETTLE_S)
    assert seen.work_per_joule == pytest.approx((10 / 40 + 20 / 40) / 300)
    assert seen.energy_saved == pytest.approx(1 - 300 / (400 * 0.25 + 400 * 0.5))
    assert (seen.state, seen.flags, seen.host) == ("stopped", (), "node-1")


@pytest.mark.parametrize(
    ("phases", "state"),
    [(("Succeeded", "Running"), "finished"), (("Failed", "Succeeded"), "failed")],
)
def test_the_state_is_that_of_the_pods(phases: tuple[str, str], state: str) -> None:
    """And who had ended did so first."""
    overlap, _ = together(shared(UID), shared(OTHER), 5)
    for meter, phase in zip(overlap.meters, phases, strict=True):
        meter.tenant = shared(meter.tenant.uid, phase=phase)
    seen = overlap.observe("n", "k8s")
    assert seen.state == state
    assert sorted(part.ended_first for part in seen.parts) == sorted(p != "Running" for p in phases)


def test_doubts_become_flags() -> None:
    """Too short, a limit that was not proven, a job that is faster than its share allows."""
    short, _ = together(shared(UID), shared(OTHER), 2)
    assert "not-settled" in short.observe("n", "k8s").flags
    overlap, _ = together(shared(UID, share="25"), shared(OTHER, share="25"), 20)
    overlap.meters[0].take_proof(Proof(False, why="x"))
    assert overlap.observe("n", "k8s").flags == ("limit-broken", "too-fast")


def test_an_overlap_ends_with_a_pod_and_not_with_a_pause() -> None:
    """Phases follow the end of a process; a process that only restarts ends nothing at once."""
    overlap, last_s = together(shared(UID), shared(OTHER), 5)
    both = overlap.uids
    assert not overlap.has_ended(last_s, both)
    overlap.meters[0].working = False
    assert not overlap.has_ended(last_s + 1, both)
    assert overlap.has_ended(last_s + GONE_S + 1, both)
    assert overlap.has_ended(last_s + 1, both - {overlap.meters[0].tenant.uid})
    overlap.meters[0].tenant = shared(overlap.meters[0].tenant.uid, phase="Succeeded")
    assert overlap.has_ended(last_s + 1, both)


# Reports


def refused(status: int) -> ApiError:
    return ApiError("bad-input", "no", status=status)


def test_observations_wait_for_a_service_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent in order, each once; one that is no good does not hold up the next."""
    seen = [together(shared(UID), shared(OTHER), 5)[0].observe(f"n{n}", "k8s") for n in range(3)]
    answers: list[ClientError | None] = [UnreachableError("down"), None, refused(422), None]
    got = list[str | None]()

    def send(observations: Sequence[Observation]) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        got.extend(one.host for one in observations)

    now_s = [1000.0]
    monkeypatch.setattr("advisor_node.metering.reports.time.monotonic", lambda: now_s[0])
    waiting = Reports(send)
    for one in seen:
        waiting.add(one)
    waiting.flush()
    waiting.flush()
    assert (waiting.waiting, len(answers)) == (3, 3)
    now_s[0] += 60
    waiting.flush()
    assert (got, waiting.sent, waiting.lost, waiting.waiting) == (["n0", "n2"], 2, 1, 0)


def test_a_queue_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go, and are counted."""
    monkeypatch.setattr(reports, "MOST_WAITING", 2)
    waiting = Reports(lambda _: None)
    one = together(shared(UID), shared(OTHER), 5)[0].observe("n", "k8s")
    for _ in range(5):
        waiting.add(one)
    assert (waiting.waiting, waiting.lost) == (2, 3)
