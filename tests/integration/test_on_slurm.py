"""`--on slurm` on a real Slurm: array job, a node lost in mid-run, Ctrl-C; GPUs are fakes."""

import json
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fanned_out import PLAN, answer_of, each_once, of_shards, stored, two_gpus, until
from host import FakeHost
from slurm_cluster import Cluster, kill, slurm_cluster, start
from waiting import eventually

pytest.importorskip("submitit", reason="needs the extra slurm")
pytestmark = pytest.mark.slurm

COLOCATE = ("colocate", *PLAN, "--on", "slurm", "--shards", "2", "--json")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A node with two GPUs; its folder has a short name for munge's socket."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        Path(folder).chmod(0o755)
        with slurm_cluster(Path(folder), gpus=2) as running:
            yield running


@pytest.fixture
def there(host: FakeHost, cluster: Cluster) -> dict[str, str]:
    return {**two_gpus(host), "SLURM_CONF": str(cluster.etc / "slurm.conf")}


def test_a_lost_node_loses_no_point_and_none_is_measured_twice(
    host: FakeHost, cluster: Cluster, there: dict[str, str]
) -> None:
    """Slurm queues its shards again, and each goes on where it stopped."""
    with host.start_advisor(*COLOCATE, **there, SBATCH_TIMELIMIT="2:00:00") as process:
        until(lambda: len(of_shards(host)) >= 2, process)
        asked = cluster.run("squeue", "--noheader", "--array", "--format=%l %b").stdout
        assert asked.splitlines() == ["2:00:00 gres:gpu:1"] * 2
        kill(cluster, "slurmd")
        shutil.rmtree(host.folder / "run")  # as /run of a node that starts again
        kept = of_shards(host)
        lose_node(cluster)
        answer = answer_of(process)
    points = stored(host)
    assert each_once(points)
    assert all(point in points for point in kept)
    assert (answer["windows"], answer["measured"]) == (4, 4 - len(kept))
    assert not (host.folder / "home/fanout/night").exists()


@pytest.mark.nightly
def test_ctrl_c_keeps_points_and_the_same_command_goes_on(
    host: FakeHost, cluster: Cluster, there: dict[str, str]
) -> None:
    """Its shards leave Slurm's queue, and their points are in the store."""
    with host.start_advisor(*COLOCATE, **there) as process:
        until(lambda: len(of_shards(host)) >= 2, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on from here" in errors
    assert cluster.run("squeue", "--noheader").stdout == ""
    kept = stored(host)
    assert len(kept) >= 2
    # Here it would go on, too: a pair that is whole on any card is not measured again.
    answer = json.loads(host.advisor("colocate", *PLAN, "--dry-run", "--json", **there).stdout)
    assert (answer["windows"], answer["to_measure"]) == (4, 4 - len(kept))


@pytest.mark.nightly
def test_a_command_that_was_killed_goes_on(
    host: FakeHost, cluster: Cluster, there: dict[str, str]
) -> None:
    """Kill -9 leaves its shards in Slurm's queue; the same command ends them and takes over."""
    with host.start_advisor(*COLOCATE, **there) as process:
        until(lambda: len(of_shards(host)) >= 2, process)
        process.kill()
    with host.start_advisor(*COLOCATE, **there, SBATCH_JOB_NAME="mine") as process:
        answer_of(process)
    assert each_once(stored(host))
    assert cluster.run("squeue", "--noheader").stdout == ""


@pytest.mark.nightly
def test_a_shard_that_has_to_leave_is_queued_again(
    host: FakeHost, cluster: Cluster, there: dict[str, str]
) -> None:
    """Slurm's signal before the time limit, or for a job that is more urgent."""
    with host.start_advisor(*COLOCATE, **there) as process:
        until(lambda: len(of_shards(host)) >= 2, process)
        (first, _) = cluster.run("squeue", "-h", "-r", "-o", "%i").stdout.split()
        cluster.run("scancel", "--signal=USR2", first)
        until(lambda: "PENDING" in cluster.run("squeue", "-h", "-r", "-o", "%T").stdout, process)
        kept = of_shards(host)
        cluster.run("scontrol", "update", f"JobId={first}", "StartTime=now")
        answer_of(process)
    assert each_once(stored(host))
    assert all(point in stored(host) for point in kept)


def test_slurm_that_refuses_says_why(host: FakeHost, there: dict[str, str]) -> None:
    """Options of the site are sbatch's own variables, and its error is ours."""
    done = host.advisor(*COLOCATE, **there, SBATCH_PARTITION="nowhere")
    assert done.returncode == 2, done.stderr
    assert "Slurm did not take the shards" in done.stderr
    assert "nowhere" in done.stderr or "partition" in done.stderr


def lose_node(cluster: Cluster) -> None:
    """What slurmctld does by itself after SlurmdTimeout, and the node that comes back.

    Slurm waits two minutes before a shard of a lost node starts again, so that nothing which it
    still sends to the lost one ends the new one; here it need not wait once that was sent.
    """
    cluster.set_node("State=DOWN", "Reason=lost")
    waiting = cluster.run("squeue", "-h", "-r", "-o", "%i").stdout.split()
    assert len(waiting) == 2, cluster.log("slurmctld")
    cluster.set_node("State=RESUME")
    start(cluster, "slurmd")
    eventually(lambda: re.search(r"Agent count: +0\n", cluster.run("sdiag").stdout), cluster.logs)
    for number in waiting:
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now")
