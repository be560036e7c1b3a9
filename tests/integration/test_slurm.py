"""A real Slurm with the plugin, its scripts and a real service; the GPU and its MPS are fakes."""

import re
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from serving import Served, serving
from slurm_cluster import Cluster, kill, slurm_cluster, start
from waiting import eventually

pytestmark = pytest.mark.slurm

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")
# Writes what it was given, and what its steps are; then waits until its partner runs, too.
PAIR = """
env > env.$SLURM_JOB_NAME
srun env > step.$SLURM_JOB_NAME || exit 3
for i in $(seq 100); do [ -e step.$1 ] && exit 0; sleep 0.2; done; exit 4
"""
# Runs until the test makes a file.
UNTIL = "while [ ! -e {} ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Its folder has a short name for munge's socket, and other users of the host may enter it."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        Path(folder).chmod(0o755)
        with slurm_cluster(Path(folder)) as running:
            yield running


@pytest.fixture(scope="module")
def service(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("serve")) as served:
        yield served


@pytest.fixture
def nobody_listens() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_two_jobs_share_a_gpu_as_advised(cluster: Cluster, service: Served) -> None:
    """Both are rewritten, run at the same time, and have the advised percentages in every step."""
    cluster.point_at(service.url)
    a, said = submit_pair(cluster, "bert-infer-b2", "reduction", "--gres=gpu:1")
    b, _ = submit_pair(cluster, "reduction", "bert-infer-b2", "--gpus=1")
    assert "advisor: 50 % of a GPU: beside reduction, split 50/26" in said
    ended = {number: cluster.await_state(number, *ENDED) for number in (a, b)}
    assert [job["ExitCode"] for job in ended.values()] == ["0:0", "0:0"], job_output(cluster, a, b)
    assert [ended[number]["TresPerNode"] for number in (a, b)] == ["gres:mps:50", "gres:mps:26"]
    for kind in ("env", "step"):
        assert percentages(cluster, kind, "bert-infer-b2", "reduction") == ["50", "26"]
    assert ended[b]["AdminComment"] == ("advisor: 26 % of a GPU: beside bert-infer-b2, split 26/50")


def test_shares_that_overlap_run_together(cluster: Cluster, service: Served) -> None:
    """11 % and 90 % are all SMs of a GPU; Slurm counts them as 10 and 89."""
    cluster.point_at(service.url)
    a, _ = submit_pair(cluster, "resnet50-infer-b2", "whisper-infer-b2", "--gres=gpu:1")
    b, _ = submit_pair(cluster, "whisper-infer-b2", "resnet50-infer-b2", "--gres=gpu:1")
    ended = [cluster.await_state(number, *ENDED) for number in (a, b)]
    assert [job["ExitCode"] for job in ended] == ["0:0", "0:0"], job_output(cluster, a, b)
    assert [job["TresPerNode"] for job in ended] == ["gres:mps:10", "gres:mps:89"]
    assert percentages(cluster, "step", "resnet50-infer-b2", "whisper-infer-b2") == ["11", "90"]


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
    wrapped = ("--gres=mps:30", "--chdir=/", "--output=/dev/null", "--wrap=true")
    done = cluster.run("sbatch", "--parsable", *wrapped, user="nobody")
    assert done.returncode == 0, done.stderr
    theirs = done.stdout.strip()
    assert cluster.await_turn(theirs) == "PENDING"
    cluster.run("scancel", mine)
    cluster.await_state(theirs, "COMPLETED")
    uid = cluster.run("id", "-u", "nobody").stdout.strip()
    assert (cluster.mps / f"gpu0-{uid}/pipe").stat().st_uid == int(uid)


def test_a_job_that_is_held_without_the_service_can_be_released(
    cluster: Cluster, nobody_listens: str
) -> None:
    cluster.point_at(nobody_listens, without_advice="hold")
    number, said = cluster.submit("true", "--gres=gpu:1", "--comment=advisor:job=gemm")
    assert "without advice: no answer from " in said
    job = cluster.await_state(number, "PENDING")
    assert job["TresPerNode"] == "gres:gpu:1"
    assert "without advice: no answer from " in job["AdminComment"]
    assert job["Reason"].startswith("JobHeld")
    cluster.run("scontrol", "release", number)
    cluster.await_state(number, "COMPLETED")


def test_a_whole_gpu_is_waited_for(cluster: Cluster, nobody_listens: str) -> None:
    cluster.point_at(nobody_listens, without_advice="100")
    beside, _ = cluster.submit("sleep 60", "--gres=mps:30")
    cluster.await_state(beside, "RUNNING")
    whole, _ = cluster.submit("true", "--gres=gpu:1", "--comment=advisor:job=gemm")
    assert cluster.await_turn(whole) == "PENDING"
    cluster.run("scancel", beside)
    assert cluster.await_state(whole, *ENDED)["JobState"] == "COMPLETED"


def test_a_service_that_is_killed_stops_no_submission(cluster: Cluster, tmp_path: Path) -> None:
    """Kill -9 while jobs are being submitted: those before are rewritten, those after pass."""
    (tmp_path / "serve").mkdir()
    with serving(tmp_path / "serve") as served, ThreadPoolExecutor(2) as pool:
        cluster.point_at(served.url)
        options = ("--gres=gpu:1", "--hold", "--comment=advisor:job=reduction,with=bert-infer-b2")
        cluster.submit("true", *options)
        sent = [pool.submit(cluster.submit, "true", *options) for _ in range(30)]
        wait(sent, return_when=FIRST_COMPLETED)
        served.process.kill()
        said = [each.result()[1] for each in sent]
    cluster.run("scancel", "--state=PENDING", "--user=root")
    advised = ["26 % of a GPU: beside bert-infer-b2" in text for text in said]
    assert any(advised), said
    assert all(
        "without advice: " in text for text, known in zip(said, advised, strict=True) if not known
    )
    assert not advised[-1]


def test_a_controller_that_was_killed_forgets_nothing(cluster: Cluster, service: Served) -> None:
    """Kill -9 of slurmctld beside a running job and a waiting one; both end with their shares."""
    cluster.point_at(service.url)
    running, _ = cluster.submit(UNTIL.format("go"), "--gres=mps:80")
    cluster.await_state(running, "RUNNING")
    comment = "--comment=advisor:job=bert-infer-b2,with=reduction"
    options = ("--gres=gpu:1", "--job-name=written-down", comment)
    waiting, _ = cluster.submit("env > env.killed", *options)
    # Slurm writes its state down every five seconds; what came later would be lost.
    state = cluster.folder / "state/job_state"
    eventually(lambda: state.exists() and b"written-down" in state.read_bytes())
    kill(cluster, "slurmctld")
    start(cluster, "slurmctld")
    (cluster.folder / "go").touch()
    assert cluster.await_state(waiting, *ENDED)["TresPerNode"] == "gres:mps:50"
    assert cluster.await_state(running, *ENDED)["JobState"] == "COMPLETED"
    assert percentages(cluster, "env", "killed") == ["50"]


def test_a_node_that_died_starts_clean(cluster: Cluster) -> None:
    """Kill -9 of slurmd, its jobs and its MPS daemon; the next Prolog starts another daemon."""
    lost, _ = cluster.submit("sleep 60", "--gres=mps:30", "--no-requeue")
    cluster.await_state(lost, "RUNNING")
    kill(cluster, "slurmd")
    start(cluster, "slurmd")
    cluster.run("scancel", lost)
    number, _ = cluster.submit("true", "--gres=mps:30")
    assert cluster.await_state(number, *ENDED)["JobState"] == "COMPLETED"


def test_no_daemon_no_job(cluster: Cluster) -> None:
    """A job that would run without a limit does not run: the node is drained, and says so."""
    script = cluster.etc / "advisor/mps.sh"
    text = script.read_text()
    eventually(lambda: not list(cluster.mps.glob("gpu0-0/jobs/*")))  # also where none ran yet
    script.write_text(re.sub("^MPS_CONTROL=.*", "MPS_CONTROL=/bin/false", text, flags=re.MULTILINE))
    number, _ = cluster.submit("touch ran", "--gres=mps:30")
    try:
        eventually(lambda: "drain" in cluster.node_state())
        assert not (cluster.folder / "ran").exists()
    finally:
        script.write_text(text)
        cluster.run("scancel", number)
        cluster.set_node("State=RESUME")


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


def submit_pair(cluster: Cluster, job: str, partner: str, request: str) -> tuple[str, str]:
    """A job that waits for its partner to run; its number, and what the user was shown."""
    comment = f"--comment=advisor:job={job},with={partner}"
    script = f"set -- {partner}\n{PAIR}"
    options = (request, comment, f"--job-name={job}", f"--chdir={cluster.folder}")
    return cluster.submit(script, *options)


def percentages(cluster: Cluster, kind: str, *jobs: str) -> list[str | None]:
    """The limits in the environments that jobs or their steps wrote down."""
    found: list[str | None] = []
    for job in jobs:
        lines = (cluster.folder / f"{kind}.{job}").read_text().splitlines()
        variables = dict(line.split("=", 1) for line in lines if "=" in line)
        assert variables["CUDA_MPS_PIPE_DIRECTORY"] == str(cluster.mps / "gpu0-0/pipe")
        found.append(variables.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
    return found


def job_output(cluster: Cluster, *numbers: str) -> str:
    return "".join((cluster.folder / f"slurm-{number}.out").read_text() for number in numbers)
