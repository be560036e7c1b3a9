"""A real Slurm with its books, the plugin, the scripts and what decides; GPU and MPS are fakes."""

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pair_service import pair_service
from scripted_http import Scripted, scripted_http
from slurm_cluster import Cluster, kill, slurm_cluster, start
from waiting import eventually

from advisor.core.job import ProgressSettings
from advisor.formats.job_file import watched_job
from advisor_audit.audit import pairing_labels
from advisor_audit.packing import Workload

pytestmark = pytest.mark.slurm

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
SHARES = {("a", "b"): (50, 26), ("k", "k"): (30, 30),
          ("s", "s"): (100, 100), ("s", "s", "s"): (100, 100, 100)}  # fmt: skip
WAIT_S = 6
# Writes what it was given, and what its steps are; then waits until its partner runs, too.
PAIR = """
env > env.$SLURM_JOB_NAME
srun env > step.$SLURM_JOB_NAME || exit 3
for i in $(seq 100); do [ -e step.{} ] && exit 0; sleep 0.2; done; exit 4
"""
# Runs until the test makes a file.
UNTIL = "env > env.$SLURM_JOB_NAME; while [ ! -e {} ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Its folder has a short name for munge's socket, and other users of the host may enter it."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "out").mkdir()
        (Path(folder) / "out").chmod(0o777)
        more = "AccountingStorageEnforce=limits\nDefCpuPerGPU=3\n"
        with slurm_cluster(Path(folder), books=True, settings=more) as running:
            yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with scripted_http() as server:
        yield server


@pytest.fixture(scope="module")
def service(cluster: Cluster, server: Scripted) -> Scripted:
    """Knows which of the jobs a, b, c and k should share."""
    server.will(pair_service(SHARES))
    cluster.point_at(server.url, wait_s=str(WAIT_S))
    return server


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.run("scancel", "--user=root")
    cluster.run("scancel", "--user=nobody")
    eventually(lambda: not cluster.run("squeue", "-h").stdout, cluster.logs)


def submit(cluster: Cluster, job: str, script: str, *options: str) -> str:
    """A job that names itself and nobody else."""
    words = (f"--comment=advisor:job={job}", f"--job-name={job}", f"--chdir={cluster.folder}")
    request = () if any("gpu" in option for option in options) else ("--gres=gpu:1",)
    return cluster.submit(script, *request, *words, *options)[0]


def submit_as_nobody(cluster: Cluster, *options: str, script: str = "") -> tuple[str, str]:
    """A job of another user, who may write into no folder of ours, and what he is told."""
    words = ("--chdir=/", "--output=/dev/null", *options)
    done = cluster.run("sbatch", "--parsable", *words, user="nobody", script=script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def variables(cluster: Cluster, name: str) -> dict[str, str]:
    lines = (cluster.folder / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def billed(cluster: Cluster, number: str) -> dict[str, str]:
    """What the books have of a job that has ended."""
    return eventually(
        lambda: dict(
            word.split("=", 1)
            for word in cluster.run("sacct", "-nXP", "-j", number, "-o", "AllocTRES")
            .stdout.strip()
            .split(",")
            if "=" in word
        )
    )


def finished(cluster: Cluster, *numbers: str) -> list[dict[str, str]]:
    jobs = [cluster.await_state(number, *ENDED) for number in numbers]
    out = [cluster.folder / f"slurm-{number}.out" for number in numbers]
    said = [file.read_text() for file in out if file.exists()]
    assert [job["ExitCode"] for job in jobs] == ["0:0"] * len(jobs), f"{said}{cluster.logs()}"
    return jobs


# Who meets whom


@pytest.mark.usefixtures("service")
def test_two_jobs_meet_that_do_not_name_each_other(cluster: Cluster) -> None:
    """They run at the same time, have the advised percentages in every step, and are billed."""
    numbers = [submit(cluster, job, PAIR.format(other), "-t", "30") for job, other in ("ab", "ba")]
    ended = finished(cluster, *numbers)
    for kind in ("env", "step"):
        found = [variables(cluster, f"{kind}.{job}") for job in "ab"]
        assert [f["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for f in found] == ["50", "26"]
        # What nobody needs of the card is open to both.
        assert {f["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] for f in found} == {"0=134070M"}
        assert {f["CUDA_MPS_PIPE_DIRECTORY"] for f in found} == {str(cluster.mps / "gpu0-0/pipe")}
    assert [job["TresPerNode"] for job in ended] == ["gres:mps:66", "gres:mps:34"]
    assert ended[0]["AdminComment"] == (
        "advisor: 50 % of a GPU, held for b, split 50/26, at most 134,070 MiB of its memory; "
        "time limit 60 min, since it runs at 50 % of its speed at worst"
    )
    assert f"of a GPU beside job {numbers[0]} (a), split 50/26" in ended[1]["AdminComment"]
    assert [job["TimeLimit"] for job in ended] == ["01:00:00", "01:00:00"]
    books = [billed(cluster, number) for number in numbers]
    assert [book["gres/mps"] for book in books] == ["66", "34"]
    # Three CPUs come with a GPU by default; the GPU weighs 100.
    assert [(book["cpu"], book["billing"]) for book in books] == [("3", "69"), ("3", "37")]
    said = (cluster.folder / f"slurm-{numbers[0]}.out").read_text()
    assert "advisor: at most 134070 MiB of GPU memory" in said


@pytest.mark.usefixtures("service")
def test_unnamed_jobs_are_named_after_their_command(cluster: Cluster) -> None:
    """The tasks of an array by one name, which is that of their process, from any folder."""
    (cluster.folder / "nap.py").write_text("print(1)")
    script = f"srun {sys.executable} nap.py --lr 1 > out.$SLURM_JOB_ID 2>&1\n"
    numbers = [
        submit(cluster, "auto", script, "--array=1-2"), submit(cluster, "auto", script)
    ]  # fmt: skip
    name = watched_job(
        ("python", f"{cluster.folder}/nap.py", "--lr", "1"), None, ProgressSettings()
    ).name
    for number in numbers:
        job = cluster.await_state(number, *ENDED)
        assert job["Comment"] == f"advisor:job={name}", cluster.logs()
    jobs = [Workload("", f"job {number}") for number in numbers]
    line = "sbatch --comment=advisor:job=auto --parsable "
    eventually(lambda: cluster.run("bash", "-c", pairing_labels(jobs)).stdout.count(line) == 2)


@pytest.mark.usefixtures("service")
def test_three_small_jobs_meet_on_one_gpu(cluster: Cluster) -> None:
    """Planned from what waits: all three run at the same time, and are a whole GPU in the books."""
    script = "touch s.$SLURM_JOB_ID; for i in $(seq 300); do"
    script += " [ $(ls s.* | wc -l) = 3 ] && exit 0; sleep 0.1; done; exit 4"
    ended = finished(cluster, *[submit(cluster, "s", script, "-c1") for _ in "123"])
    assert [job["TresPerNode"] for job in ended] == [f"gres:mps:{n}" for n in (51, 24, 25)]
    assert "held for s and s, split 100/100/100" in ended[0]["AdminComment"]
    assert "(s) and job" in ended[2]["AdminComment"]


@pytest.mark.usefixtures("service")
def test_tasks_of_an_array_meet(cluster: Cluster) -> None:
    script = "touch k.$SLURM_ARRAY_TASK_ID; for i in $(seq 100); do [ -e k.1 -a -e k.2 ] && exit 0;"
    array = submit(cluster, "k", f"{script} sleep 0.2; done; exit 4", "--array=1-2")
    for task, counted in ((1, 51), (2, 49)):
        job = cluster.await_state(f"{array}_{task}", *ENDED)
        assert (job["JobState"], job["TresPerNode"]) == ("COMPLETED", f"gres:mps:{counted}")


def test_who_decides_may_die(cluster: Cluster, service: Scripted) -> None:
    """Jobs that wait begin by themselves; those that come are left as they are."""
    a, b = (submit(cluster, job, "true", "--begin=now+2") for job in "ab")
    kill(cluster, "match")
    assert [job["TresPerNode"] for job in finished(cluster, a, b)] == ["gres:mps:100"] * 2
    (cluster.folder / "facts").write_text("written_at = 1\n")
    number, said = cluster.submit("true", "--gres=gpu:1", "--comment=advisor:job=a")
    assert "unchanged: `advisor slurm match` does not run" in said
    assert finished(cluster, number)[0]["TresPerNode"] == "gres:gpu:1"
    cluster.point_at(service.url, wait_s=str(WAIT_S))


# The books


@pytest.mark.usefixtures("service")
def test_a_limit_on_gpus_holds_for_parts_of_them(cluster: Cluster) -> None:
    of_user = ("modify", "user", "nobody", "set")
    options = ("--gres=gpu:1", "--comment=advisor:job=a", "--wrap=true")

    def facts() -> str:
        return (cluster.folder / "facts").read_text()

    try:
        cluster.manage(*of_user, "GrpTRES=gres/gpu=0")
        eventually(lambda: "without gres/mps: add gres/mps=0" in facts())
        number, said = submit_as_nobody(cluster, *options)
        assert "advisor: unchanged: assoc work nobody has GrpTRES=gres/gpu=0 without" in said
        doctor = cluster.run(Path(sys.executable).parent / "advisor", "doctor", "--json")
        [found] = [f for f in json.loads(doctor.stdout)["findings"] if f["check"] == "slurm books"]
        assert (found["verdict"], found["fix"]) == ("warning", "add gres/mps=0")
        assert found["found"] == "assoc work nobody has GrpTRES=gres/gpu=0 without gres/mps"
        assert cluster.await_turn(number) == "PENDING"
        assert cluster.job(number)["TresPerNode"] == "gres:gpu:1"
        cluster.manage(*of_user, "GrpTRES=gres/gpu=0,gres/mps=0")
        eventually(lambda: "books = ok" in facts())
        number, _ = submit_as_nobody(cluster, *options)
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now")
        eventually(lambda: cluster.job(number)["Reason"] == "AssocGrpGRES")
    finally:
        cluster.manage(*of_user, "GrpTRES=gres/gpu=-1,gres/mps=-1")
        eventually(lambda: "books = ok" in facts())


# What a submission says


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("options", "cpus", "memory"),
    [
        (("--gres=gpu:1", "--cpus-per-gpu=2"), "2", "0"),
        (("--gpus=1", "--cpus-per-gpu=2", "--mem-per-gpu=100M"), "2", "100M"),
        (("--gres=gpu:1",), "3", "0"),
        (("--gres=gpu:1", "--exclusive=user"), "3", "0"),
        (("--gres=gpu:h200:1",), "3", "0"),
        (("--gres=gpu:1", "--cpus-per-task=4"), "4", "0"),
    ],
)
def test_what_comes_with_a_gpu_is_kept(
    cluster: Cluster, options: tuple[str, ...], cpus: str, memory: str
) -> None:
    """Slurm refuses such options without a GPU, and would give its default CPUs to nobody."""
    job = cluster.job(submit(cluster, "alone", "srun true", "--hold", *options))
    found = (job["TresPerNode"], job["NumCPUs"], job["MinMemoryNode"])
    assert found == ("gres:mps:100", cpus, memory)


# Shares belong to jobs


@pytest.mark.usefixtures("service")
def test_a_job_within_a_job_has_its_own_share(cluster: Cluster) -> None:
    kinds = {"whole": "--gres=gpu:1", "part": "--gres=mps:10", "none": "--ntasks=1"}
    sends = "\n".join(
        f"sbatch {request} --job-name={name} --chdir={cluster.folder} "
        f"--wrap='env > env.{name}; srun env > step.{name}; touch done.{name}'"
        for name, request in kinds.items()
    )
    a = submit(cluster, "a", f"{sends}\n{UNTIL.format('go.parent')}")
    b = submit(cluster, "b", UNTIL.format("go.parent"))
    cluster.await_state(b, "RUNNING")
    (cluster.folder / "go.parent").touch()
    finished(cluster, a, b)
    eventually(lambda: all((cluster.folder / f"done.{name}").exists() for name in kinds))
    for kind in ("env", "step"):
        for name in ("whole", "none"):
            found = variables(cluster, f"{kind}.{name}")
            assert not [key for key in found if key.startswith(("CUDA_MPS", "ADVISOR"))], found
        part = variables(cluster, f"{kind}.part")
        assert part["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "10"
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in part
        assert "ADVISOR_PROGRESS_FILE" not in part


@pytest.mark.usefixtures("service")
def test_a_count_that_root_has_changed_is_followed(cluster: Cluster) -> None:
    blocker, _ = cluster.submit(UNTIL.format("go.block"), "--gres=mps:100")
    cluster.await_state(blocker, "RUNNING")
    a = submit(cluster, "a", "env > env.changed")
    submit(cluster, "b", "true")
    eventually(lambda: cluster.job(a)["TresPerNode"] == "gres:mps:66", cluster.logs)
    theirs = cluster.run("scontrol", "update", f"JobId={a}", "Gres=mps:5", user="nobody")
    assert theirs.returncode != 0
    cluster.run("scontrol", "update", f"JobId={a}", "Gres=mps:5")
    cluster.run("scancel", blocker)
    finished(cluster, a)
    assert variables(cluster, "env.changed")["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "5"


def test_no_user_drains_a_node(cluster: Cluster) -> None:
    """Who kills his own daemon, and locks its folder, has his own jobs refused."""
    script = cluster.etc / "advisor/mps.sh"
    text = script.read_text()
    eventually(lambda: not list(cluster.mps.glob("gpu0-0/jobs/*")))  # also where none ran yet
    script.write_text(re.sub("^MPS_CONTROL=.*", "MPS_CONTROL=/bin/false", text, flags=re.MULTILINE))
    try:
        number, _ = cluster.submit("touch ran", "--gres=mps:30", f"--chdir={cluster.folder}")
        assert cluster.await_state(number, *ENDED)["JobState"] != "COMPLETED"
        assert not (cluster.folder / "ran").exists()
        assert "drain" not in cluster.node_state()
        said = (cluster.folder / f"slurm-{number}.out").read_text()
        assert "no MPS daemon of yours answers on this node" in said
    finally:
        script.write_text(text)
    finished(cluster, cluster.submit("true", "--gres=mps:30")[0])


def test_a_user_who_ends_all_that_is_his_drains_nothing(cluster: Cluster) -> None:
    """He kills daemon and control program again and again, and locks the folder of the daemon."""
    uid = cluster.run("id", "-u", "nobody").stdout.strip()
    attack = f"""#!/bin/bash
    while [ ! -e {cluster.folder}/out/peace ]; do
      for p in $(pgrep -u {uid} -f mps-control); do kill -9 $p; done
      chmod 0 {cluster.mps}/gpu0-{uid}/pipe
    done"""

    attacker, _ = submit_as_nobody(cluster, "--gres=mps:30", script=attack)
    cluster.await_state(attacker, "RUNNING")
    victim, _ = submit_as_nobody(cluster, "--gres=mps:30", "--wrap=env > /dev/null")
    cluster.await_state(victim, *ENDED)
    (cluster.folder / "out/peace").touch()
    cluster.await_state(attacker, *ENDED)
    assert cluster.node_state() in ("idle", "mixed", "allocated", "completing")
    finished(cluster, cluster.submit("true", "--gres=mps:30")[0])


# Daemons and nodes


def test_a_daemon_lives_as_long_as_its_jobs(cluster: Cluster) -> None:
    """Prolog starts it for the first job of a user, and Epilog ends it after the last."""
    pid_file = cluster.mps / "gpu0-0/pipe/nvidia-cuda-mps-control.pid"
    jobs = [cluster.submit(UNTIL.format(name), "--gres=mps:30")[0] for name in ("one", "other")]
    for job in jobs:
        cluster.await_state(job, "RUNNING")
    (cluster.folder / "one").touch()
    cluster.await_state(jobs[0], "COMPLETED")
    eventually(lambda: not (cluster.mps / "gpu0-0/jobs" / jobs[0]).exists())
    assert pid_file.exists(), "the daemon ended before its last job"
    (cluster.folder / "other").touch()
    cluster.await_state(jobs[1], "COMPLETED")
    eventually(lambda: not pid_file.exists())
    eventually(lambda: not list((cluster.mps / "gpu0-0/jobs").iterdir()))


def test_another_user_waits(cluster: Cluster) -> None:
    """MPS serves one user at a time, so a node does, although there is room."""
    mine, _ = cluster.submit("sleep 60", "--gres=mps:30")
    cluster.await_state(mine, "RUNNING")
    theirs, _ = submit_as_nobody(cluster, "--gres=mps:30", "--wrap=true")
    assert cluster.await_turn(theirs) == "PENDING"
    cluster.run("scancel", mine)
    cluster.await_state(theirs, "COMPLETED")
    uid = cluster.run("id", "-u", "nobody").stdout.strip()
    assert (cluster.mps / f"gpu0-{uid}/pipe").stat().st_uid == int(uid)


@pytest.mark.usefixtures("service")
def test_a_controller_that_was_killed_forgets_nothing(cluster: Cluster) -> None:
    running, _ = cluster.submit(UNTIL.format("go"), "--gres=mps:80")
    cluster.await_state(running, "RUNNING")
    a = submit(cluster, "a", "env > env.killed")
    submit(cluster, "b", "true")
    # Slurm writes its state down every five seconds; what came later would be lost.
    eventually(lambda: cluster.job(a)["TresPerNode"] == "gres:mps:66", cluster.logs)
    state, decided = cluster.folder / "state/job_state", time.time()
    eventually(lambda: state.exists() and state.stat().st_mtime > decided)
    kill(cluster, "slurmctld")
    start(cluster, "slurmctld")
    (cluster.folder / "go").touch()
    assert cluster.await_state(a, *ENDED)["TresPerNode"] == "gres:mps:66"
    assert cluster.await_state(running, *ENDED)["JobState"] == "COMPLETED"
    assert variables(cluster, "env.killed")["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"


def test_a_node_that_died_starts_clean(cluster: Cluster) -> None:
    """Kill -9 of slurmd, its jobs and its MPS daemon; the next Prolog starts another daemon."""
    lost, _ = cluster.submit("sleep 60", "--gres=mps:30", "--no-requeue")
    cluster.await_state(lost, "RUNNING")
    kill(cluster, "slurmd")
    start(cluster, "slurmd")
    cluster.run("scancel", lost)
    number, _ = cluster.submit("true", "--gres=mps:30")
    assert cluster.await_state(number, *ENDED)["JobState"] == "COMPLETED"


def test_each_gpu_has_a_daemon_of_its_own() -> None:
    """On a node with two GPUs; to its clients each is device 0."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        with slurm_cluster(Path(folder), gpus=2) as two:
            options = ("--gres=mps:80", f"--chdir={folder}")
            numbers = [two.submit("env > env.$SLURM_JOB_GPUS; sleep 3", *options)[0] for _ in "ab"]
            for number in numbers:
                two.await_state(number, "COMPLETED")
        for gpu in range(2):
            lines = (Path(folder) / f"env.{gpu}").read_text().splitlines()
            assert "CUDA_VISIBLE_DEVICES=0" in lines
            assert f"CUDA_MPS_PIPE_DIRECTORY={folder}/mps/gpu{gpu}-0/pipe" in lines


def test_several_users_share_a_gpu_where_the_site_wants_it() -> None:
    """One daemon of root's serves both, and a part of one user's locks no node (as user slurm)."""
    with tempfile.TemporaryDirectory(prefix="adv") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with slurm_cluster(folder, users="several", slurm_user="slurm") as both:
            mine, _ = both.submit(UNTIL.format("go"), "--gres=mps:30", f"--chdir={folder}")
            both.await_state(mine, "RUNNING")
            same = f"--wrap=[ $CUDA_MPS_PIPE_DIRECTORY = {folder}/mps/gpu0-0/pipe ]"
            theirs, _ = submit_as_nobody(both, "--gres=mps:40", same)
            assert both.await_state(theirs, *ENDED)["ExitCode"] == "0:0"
            (folder / "go").touch()
            both.await_state(mine, "COMPLETED")
            eventually(lambda: not list((both.mps / "gpu0-0/jobs").iterdir()))
