"""MPS v3 against fakes that were made after NVIDIA's documentation, not after a driver."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from host import FAKES, OTHER_UUID, UUID, FakeHost
from launched import (
    await_end,
    await_nobody,
    daemon_pid,
    detached,
    folder,
    launch,
    no_leftovers,
    processes_of,
    show,
    stop,
)
from sleeper import sleeper

from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE, Gpu, Share
from advisor.errors import LimitNotProvenError, PartitionError
from advisor.runtime.backends.limit import look
from advisor.runtime.backends.mps3 import Mps3Backend, namespace_of, open_newest
from advisor.runtime.backends.mps3_control import Control3, speaks_v3
from advisor.runtime.host.processes import owner_of, wait_until

GPU = Gpu(uuid=UUID, model="Fake H200", units_total=132)
RUNS = ("--split", "30/70")


@pytest.fixture
def host(host: FakeHost) -> FakeHost:
    """One whose driver has MPS v3."""
    return replace(host, mps="3")


@pytest.fixture
def backend(host: FakeHost) -> Iterator[Mps3Backend]:
    backend = open_newest(GPU, host.folder / "run", host.environment())
    assert isinstance(backend, Mps3Backend)
    yield backend
    host.control("-q")


@pytest.fixture
def jobs(host: FakeHost) -> Iterator[FakeHost]:
    """With two good jobs, of which nothing lives on."""
    for name in ("one", "two"):
        host.write_job(name)
    with no_leftovers(host):
        yield host


def in_job(host: FakeHost, of: Mps3Backend, share: Share, **changed: str) -> dict[str, str]:
    return host.environment(**of.environment(share), **changed)


def namespaces(host: FakeHost) -> set[str]:
    return {path.name for path in host.pipe_dir.glob("gpu/*")} - {"default"}


# the back-end


def test_every_share_is_read_back_from_its_namespace(backend: Mps3Backend, host: FakeHost) -> None:
    """The ten shares of a sweep give what those of variables give."""
    granted: list[int | None] = []
    for percent in range(10, 101, 10):
        share = Share(percent)
        bound = backend.for_job(f"{percent}-a", share)
        granted.append(bound.prove(share, in_job(host, bound, share)).units)
        assert bound.holds(percent)
        bound.end_job()
    assert granted == [12, 26, 38, 52, 66, 78, 92, 104, 118, 132]
    assert namespaces(host) == set()


@pytest.mark.parametrize("said", ["100", "", "0", "x", "30"])
def test_what_a_process_says_changes_nothing(
    backend: Mps3Backend, host: FakeHost, said: str
) -> None:
    """No percentage of its own raises its share, and its memory is bounded by the server."""
    share = Share(30, memory_mib=4000)
    bound = backend.for_job("0-a", share)
    environment = in_job(host, bound, share)
    assert bound.prove(share, environment).memory_mib == 4000
    (seen,) = look(environment | {PERCENTAGE: said, MEMORY_LIMIT: "0=60000M"})
    assert (seen.units, seen.free_mib) == (38, 3976)


def test_limit_that_is_shown_and_not_held_is_no_proof(backend: Mps3Backend, host: FakeHost) -> None:
    """A process that carries its share by itself would look as if the server held it."""
    share = Share(30, memory_mib=4000)
    bound = backend.for_job("0-a", share)
    environment = in_job(host, bound, share)
    (host.pipe_dir / "gpu/0_a/memory").unlink()
    with pytest.raises(LimitNotProvenError, match="are free to it"):
        bound.prove(share, environment)
    (host.pipe_dir / "gpu/0_a/percentage").unlink()
    with pytest.raises(LimitNotProvenError, match="but a process saw 132"):
        bound.prove(share, environment)


def test_who_has_no_namespace_has_next_to_nothing(backend: Mps3Backend, host: FakeHost) -> None:
    """What the server gives beside those of jobs is one percent."""
    for bound in (backend, backend.for_job("0-a", Share(30))):
        assert not bound.holds(20)
    (seen,) = look(in_job(host, backend, Share(100)))
    assert (seen.units, seen.mps) == (8, True)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("refuse-namespace", "refused 'namespace create 0_a"),
        ("refuse-set", "refused 'namespace set 0_a"),
        ("die", "refused 'namespace set 0_a"),
        ("gives", "namespace 0_a gives 50 %, and 30 % was set"),
    ],
)
def test_namespace_that_is_not_as_asked_is_none(
    backend: Mps3Backend, host: FakeHost, fault: str, message: str
) -> None:
    """One without its limits gives the whole GPU, so none is left; a dead server takes it along."""
    (host.pipe_dir / fault).write_text("50")
    with pytest.raises(PartitionError, match=message):
        backend.for_job("0-a", Share(30))
    assert backend.control.servers() == [] or namespaces(host) == set()


def test_memory_that_is_not_as_asked_is_refused(backend: Mps3Backend, host: FakeHost) -> None:
    """More than was set, nothing, and what cannot be read; less is what a daemon may round to."""
    share = Share(30, memory_mib=4096)
    bound = backend.for_job("0-a", share)
    bounds = host.pipe_dir / "gpu" / "0_a" / "memory"
    for given, same in (("4G", True), ("4194304K", True), ("3.5G", True), ("5G", False),
                        ("-", False), ("0M", False), ("4096", False)):  # fmt: skip
        bounds.write_text(given)
        assert (bound.control.differs("0_a", share) == "") == same, given


def test_server_of_a_gpu_that_is_not_there_is_given_up(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is created well and dies, and its clients would run without MPS: no v3 then, and why."""
    monkeypatch.setattr("advisor.runtime.backends.mps._START_S", 0.3)
    gpu = replace(GPU, uuid=OTHER_UUID)
    backend = open_newest(gpu, host.folder / "run", host.environment())
    assert not isinstance(backend, Mps3Backend)
    assert "MPS server did not become active" in backend.notes()[0]
    assert not Control3(backend.control.pipe_dir.with_name("mps3"), host.environment()).answers()
    backend.close()


def test_protocol_is_that_of_the_driver_and_of_who_chooses(host: FakeHost) -> None:
    """By the variable that NVIDIA gives it; a daemon that is already there is asked as ever."""
    old = replace(host, mps="2")
    assert speaks_v3(host.environment())
    assert not speaks_v3(old.environment())
    assert not speaks_v3(old.environment(PATH="/nonexistent"))
    chosen = host.environment(CUDA_MPS_PROTOCOL_VERSION="2")
    site = open_newest(GPU, host.folder / "run", chosen)
    there = open_newest(GPU, host.folder / "run", host.environment(), site.control.pipe_dir)
    for backend in (site, there):
        assert not isinstance(backend, Mps3Backend)
        assert backend.notes() == ()
    site.close()


@pytest.mark.parametrize("changed", [{PERCENTAGE: "90"}, {PERCENTAGE: "x"}, {}])
def test_percentage_of_a_process_is_its_own_matter(
    backend: Mps3Backend, host: FakeHost, changed: dict[str, str]
) -> None:
    """What could lead out of the namespace is not: another folder, bounds of another GPU."""
    share = Share(30, memory_mib=4000)
    bound = backend.for_job("0-a", share)
    ours = bound.environment(share)
    del ours[PERCENTAGE]
    with sleeper({**ours, **changed}) as pid:
        client = host.pipe_dir / "clients" / str(pid)
        client.write_text("0_a")
        bound.check_clients(share, lambda: [pid])
        client.write_text("0_b")
        with pytest.raises(LimitNotProvenError, match="are clients of the MPS namespace 0_b"):
            bound.check_clients(share, lambda: [pid])
    for wrong, message in (
        ({MEMORY_LIMIT: "1=4G"}, "do not carry the variables"),
        ({PERCENTAGE: "20"}, "have less than its share"),
    ):
        with sleeper({**ours, **wrong}) as pid:
            (host.pipe_dir / "clients" / str(pid)).write_text("0_a")
            with pytest.raises(LimitNotProvenError, match=message):
                bound.check_clients(share, lambda: [pid])


def test_reply_of_another_form_is_refused(backend: Mps3Backend, host: FakeHost) -> None:
    """A message is never taken for an empty list; a command line may hold line breaks."""
    command = ["sh", "-c", "sleep 60; :", "two\nlines"]
    with subprocess.Popen(command, start_new_session=True) as client:
        (host.pipe_dir / "clients" / str(client.pid)).write_text("0_a")
        assert backend.control.namespaces() == {client.pid: "0_a"}
        os.killpg(client.pid, signal.SIGKILL)
    other = saying(host, "Something else is said")
    with pytest.raises(PartitionError, match="where servers were due"):
        other.servers()
    with pytest.raises(PartitionError, match="where clients were due"):
        other.clients(1)
    with pytest.raises(PartitionError, match="where a percentage was due"):
        other.percent("0_a")


def saying(host: FakeHost, reply: str) -> Control3:
    """A front end of a control program that says one thing."""
    program = host.folder / "nvidia-cuda-mps-control"
    program.write_text(f"#!/bin/sh\necho '{reply}'\n")
    program.chmod(0o755)
    return Control3(host.pipe_dir, {"PATH": f"{host.folder}:/usr/bin:/bin"})


@pytest.mark.parametrize(
    "row",
    ["51023,gpu,0,0_a,python train.py", "51023,gpu,GPU-cc97390c,gpu/0_a (0),VLLM::EngineCore"],
)
def test_clients_are_read_as_documented_and_as_seen(host: FakeHost, row: str) -> None:
    """NVIDIA's example, and what others saw with driver 615."""
    assert saying(host, row).namespaces() == {51023: "0_a"}


def test_path_that_no_socket_can_have_is_told(host: FakeHost) -> None:
    """The daemon would say nothing, and its clients would run without MPS."""
    far = host.folder / ("f" * 40)
    backend = open_newest(GPU, far, host.environment())
    assert "would have paths of" in backend.notes()[0]
    backend.close()


def test_names_are_those_that_a_namespace_may_have() -> None:
    """Lowercase letters, digits and underscores; the end tells places apart."""
    assert namespace_of("1-joined-3") == "1_joined_3"
    assert namespace_of("LLM.serve/" + "x" * 40 + "-30-7") == "x" * 27 + "_30_7"


# launches


@pytest.mark.parametrize("inside", [True, False])
def test_job_that_changes_its_percentage_keeps_its_share(jobs: FakeHost, *, inside: bool) -> None:
    """Inside itself before its first context, or removed by a script: the server holds it."""
    fake_job = str(FAKES / "fake_job.py")
    if inside:
        changes = f"sys.path.insert(0, {str(FAKES)!r}); os.environ[{PERCENTAGE!r}] = '100'"
        runs = (
            f"import os, runpy, sys; {changes}; runpy.run_path({fake_job!r}, run_name='__main__')"
        )
        jobs.write_job("lifts", command=[sys.executable, "-c", runs])
    else:
        script = f"env -u {PERCENTAGE} {sys.executable} {fake_job}; :"
        jobs.write_job("lifts", command=["sh", "-c", script])
    name = detached(jobs, "lifts", "two", *RUNS)
    status = show(jobs, name)
    assert [(job["proven"], job["proof"]) for job in status["jobs"]] == [(True, "server")] * 2
    assert [job["units_granted"] for job in status["jobs"]] == [38, 92]
    assert all(job["memory_limit_mib"] for job in status["jobs"])
    assert namespaces(jobs) == {"0_a", "0_b"}
    assert "not read back" not in jobs.advisor("launches", "show", name).stdout
    last = stop(jobs, name)
    assert (last["state"], last["code"], last["warnings"]) == ("stopped", None, status["warnings"])
    assert not (jobs.pipe_dir / "server").exists()
    await_nobody(jobs)


def test_job_that_goes_into_the_namespace_of_its_neighbour_ends_the_launch(jobs: FakeHost) -> None:
    """It would have the other's share."""
    script = (
        "import os, time; from pathlib import Path; from answering_fake import compute\n"
        "there = Path(os.environ['CUDA_MPS_PIPE_DIRECTORY'])\n"
        "from advisor.progress import Progress\n"
        "progress = Progress(); compute(); progress.ready()\n"
        "progress.add()\n"
        "os.environ['CUDA_MPS_PIPE_DIRECTORY'] = str(there.with_name('0_b'))\n"
        "compute()\n"
        "while True: time.sleep(0.01); progress.add()\n"
    )
    environment = {"PYTHONPATH": str(FAKES)}
    jobs.write_job("moves", command=[sys.executable, "-c", script], env=environment)
    status = await_end(jobs, detached(jobs, "moves", "two", *RUNS))
    assert (status["state"], status["code"]) == ("failed", "limit-broken")
    assert "are clients of the MPS namespace 0_b" in status["cause"]
    assert [job["outcome"] for job in status["jobs"]] == ["failed", "stopped"]
    await_nobody(jobs)


def test_namespace_that_is_raised_ends_the_launch(jobs: FakeHost) -> None:
    """Whoever starts in there after that would have more."""
    name = detached(jobs, "one", "two", *RUNS)
    (jobs.pipe_dir / "gpu/0_a/percentage").write_text("70")
    status = await_end(jobs, name)
    assert (status["state"], status["code"]) == ("failed", "limit-broken")
    assert "the MPS namespace 0_a gives 70 %, and 30 % was set" in status["cause"]
    await_nobody(jobs)


def test_server_that_dies_ends_the_launch(jobs: FakeHost) -> None:
    """What starts after that has no MPS at all."""
    name = detached(jobs, "one", "two", *RUNS)
    os.kill(int((jobs.pipe_dir / "server").read_text()), signal.SIGKILL)
    status = await_end(jobs, name)
    assert (status["state"], status["code"]) in {
        ("failed", "partition"),
        ("failed", "limit-broken"),
    }
    await_nobody(jobs)


@pytest.mark.parametrize("fault", ["refuse-namespace", "refuse-set", "die", "gives"])
def test_launch_whose_limits_cannot_be_set_starts_nothing(jobs: FakeHost, fault: str) -> None:
    """And leaves no daemon, and no namespace."""
    jobs.pipe_dir.mkdir(parents=True, mode=0o700)
    (jobs.pipe_dir / fault).write_text("50")
    last = launch(jobs, "one", "two", *RUNS, "--duration", "1", code=4)
    assert (last["state"], last["code"]) == ("failed", "partition")
    assert [job["steps"] for job in last["jobs"]] == [0, 0]
    assert not (jobs.pipe_dir / "server").exists()
    assert namespaces(jobs) == set()
    await_nobody(jobs)


def test_daemon_that_does_not_start_leaves_v2(jobs: FakeHost) -> None:
    """With the reason among the warnings; the smaller share is a variable then."""
    jobs.pipe_dir.mkdir(parents=True, mode=0o700)
    (jobs.pipe_dir / "refuse").touch()
    last = launch(jobs, "one", "two", *RUNS, "--duration", "1")
    (warning,) = (text for text in last["warnings"] if "MPS v3" in text)
    assert "the MPS daemon did not start: Failed to start: permission denied" in warning
    assert [job["units_granted"] for job in last["jobs"]] == [38, 92]
    await_nobody(jobs)


def test_killed_supervisor_leaves_nobody_and_the_next_goes_on(jobs: FakeHost) -> None:
    """The guard takes jobs off the GPU by this protocol; the next launch replaces the daemon."""
    name = detached(jobs, "one", "two", *RUNS)
    first = daemon_pid(jobs)
    for pid, command in processes_of(jobs).items():
        if "supervise" in command:
            os.kill(pid, signal.SIGKILL)
    await_nobody(jobs)
    assert list((jobs.pipe_dir / "clients").glob("*.terminated"))
    assert await_end(jobs, name)["code"] == "supervisor-gone"
    assert launch(jobs, "one", "two", *RUNS, "--duration", "0.5")["state"] == "stopped"
    assert wait_until(lambda: owner_of(first) is None, 10)


def test_who_joins_has_a_namespace_of_its_own(jobs: FakeHost) -> None:
    """Made before it starts, and gone with it."""
    jobs.write_job("three", "--steps", "300")
    name = detached(jobs, "one", "two", "--split", "30/40")
    said = jobs.advisor("launch", "three", "--join", name, "--share", "30")
    assert said.returncode == 0, said.stderr
    assert namespaces(jobs) >= {"0_a", "0_b"}
    assert wait_until(lambda: namespaces(jobs) == {"0_a", "0_b"}, 20)
    last = stop(jobs, name)
    assert [job["proof"] for job in last["jobs"]] == ["server"] * 3
    assert [job["units_granted"] for job in last["jobs"]] == [38, 52, 38]
    await_nobody(jobs)


def test_plan_has_the_folder_of_each_job(jobs: FakeHost) -> None:
    """As a launch will set it."""
    plan = launch(jobs, "one", "two", *RUNS, "--dry-run")
    planned = [job["environment"] for job in plan["pairs"][0]["jobs"]]
    name = launch(jobs, "one", "two", *RUNS, "--duration", "0.3")["launch_id"]
    assert folder(jobs, name).exists()
    assert [one["CUDA_MPS_PIPE_DIRECTORY"] for one in planned] == [
        str(jobs.pipe_dir / "gpu" / place) for place in ("0_a", "0_b")
    ]


def test_profile_at_a_share_is_held_by_the_server(jobs: FakeHost) -> None:
    """There the server of protocol 2 holds nothing, and a job has any share that it takes."""
    script = f"env -u {PERCENTAGE} {sys.executable} {FAKES}/fake_job.py; :"
    jobs.write_job("lifts", command=["sh", "-c", script])
    done = jobs.advisor("profile", "lifts", "--shares", "30", "--window", "0.5")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert namespaces(jobs) == set()
    await_nobody(jobs)
