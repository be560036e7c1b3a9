"""`--on` without a cluster: what reaches the one store, what is answered, and what is refused."""

import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, in_this_process
from fanned_out import PATIENCE_S, PLAN, answer_of, each_once, of_shards, stored, two_gpus, until
from host import OTHER_UUID, UUID, FakeHost
from ray_cluster import ray_cluster
from slurm_cluster import Cluster, kill, slurm_cluster, start
from waiting import eventually

from advisor.core.records import PairPoint
from advisor.formats.rows import flat
from advisor_cli.measure.profile import show_profiles
from advisor_data import open_store
from advisor_profiling import fanout
from advisor_profiling.fanout import Ended, Shard, Submit

NODES = ("--on", "slurm", "--shards", "2")
COLOCATE = ("colocate", "--pairs", "one+two,two+two", "--splits", "50/50", "--window", "0.5")


class EngineHere:
    """Runs shards while they are submitted, as on a node with GPU 0."""

    def __init__(self) -> None:
        self.submitted: list[Shard] = []

    def submit(self, shards: Sequence[Shard]) -> Ended:
        self.submitted += shards
        for shard in shards:
            shard.run({**os.environ, "CUDA_VISIBLE_DEVICES": "0"})
        return lambda: {shard.name: "" for shard in self.submitted}

    @contextmanager
    def opened(self, *_asked: object) -> Generator[Submit]:
        yield self.submit


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> EngineHere:
    made = EngineHere()
    for engine_of in ("on_slurm", "on_ray"):
        monkeypatch.setattr(fanout, engine_of, made.opened)
    return made


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, host: FakeHost
) -> Advisor:
    """On a host with a GPU and two jobs."""
    command = in_this_process(capsys, monkeypatch, host.folder)
    for name, text in host.environment().items():
        monkeypatch.setenv(name, text)
    for job in ("one", "two"):
        host.write_job(job)
    return command


def windows(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("job_1", "job_2", "mode", "share_1_percent", "share_2_percent")
    return sorted(tuple(row[name] for name in names) for row in map(flat, answer["points"]))


@pytest.mark.slow
def test_shards_give_what_one_host_gives(
    advisor: Advisor, engine: EngineHere, host: FakeHost
) -> None:
    """The same windows under the same keys, each once in the store, and nothing left in folders."""
    here = json.loads(host.advisor(*COLOCATE, "--run", "here", "--json").stdout)
    said = advisor(*COLOCATE, "--run", "night", *NODES, "--json")
    nodes = json.loads(said.out)
    assert windows(nodes) == windows(here)
    assert (set(nodes), set(nodes["cost"])) == (set(here), set(here["cost"]))
    assert nodes["measured"] == nodes["windows"] == len(engine.submitted) == 2
    assert all(part in said.err for part in ("shard-2-of-2 |  on ", "2 of 2 shards done"))
    with open_store(None, host.folder / "home") as store:
        assert len(store.pair_points(run="night")) == 2
    assert list((host.folder / "home/fanout").glob("*/*")) == []


@pytest.mark.slow
def test_profiles_have_the_keys_of_one_profile(
    advisor: Advisor, engine: EngineHere, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("profile", "two", "one", "--shares", "50,100", "--window", "0.5", "--on", "ray")
    profiles = json.loads(advisor(*words, "--json").out)["profiles"]
    assert set(profiles[0]) == {
        "job", "gpu_model", "gpu_uuid", "replay", "run", "points", "failures",
        "idle_power_before_w", "idle_power_after_w", "duration_s", "problems",
    }  # fmt: skip
    assert [point["share_percent"] for point in profiles[0]["points"]] == [50, 100]
    assert [shard.name.split("-")[0] for shard in engine.submitted] == ["two", "one"]
    show_profiles(profiles, as_json=False)
    assert f"one on {profiles[0]['gpu_model']}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.postgres
def test_shards_write_into_postgresql_themselves(
    advisor: Advisor,
    engine: EngineHere,
    host: FakeHost,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ADVISOR_DATABASE_URL", postgres_url)
    said = advisor(*COLOCATE, "--run", "night", "--on", "ray", "--shards", "1", "--json")
    assert said.code == 0, said.err
    assert len(json.loads(said.out)["points"]) == 2
    with open_store(postgres_url, host.folder) as store:
        assert len(store.pair_points(run="night")) == 2
    assert "ADVISOR_DATABASE_URL" not in engine.submitted[0].environment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("colocate", "--among", "gemm", "--on", "ray"), "--on and --shards belong together"),
        (("colocate", "--among", "gemm", "--shards", "2"), "--on and --shards belong together"),
        (("colocate", "--among", "gemm", *NODES, "--shard", "1/2"), "give --shards alone"),
        (("colocate", "--among", "gemm", *NODES, "--gpu", "1"), "the engine chooses the GPU"),
        (("profile", "gemm", "--on", "ray", "--gpu", "replay"), "the engine chooses the GPU"),
        (("profile", "gemm", "gemm", "--on", "ray"), "gemm is named twice"),
        (("profile", "--name", "x", "--on", "ray", "--", "true"), "write a job file"),
        (("profile", "gemm", "triad", "--shard", "2/3"), "not one of 2 jobs"),
    ],
)
def test_what_cannot_be_combined_is_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    engine: EngineHere,
    tmp_path: Path,
    words: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/gemm.yaml").write_text('{"command": ["true"], "progress": {"kind": "runs"}}')
    said = in_this_process(capsys, monkeypatch, tmp_path)(*words)
    assert said.code == 2, said.err
    assert message in said.err
    assert engine.submitted == []


# `--on ray` on a real Ray cluster on loopback, a node killed in mid-run; GPUs are fakes.


ON_RAY = ("colocate", *PLAN, "--on", "ray", "--shards", "2", "--json")


@pytest.mark.ray
def test_a_node_that_is_killed_loses_no_point_and_none_is_measured_twice(host: FakeHost) -> None:
    """Ray starts its shard again on the other node, where it goes on behind its last point."""
    with (
        ray_cluster(host.environment(**two_gpus(host))) as cluster,
        host.start_advisor(*ON_RAY, **cluster.environment) as process,
    ):
        until(lambda: on_card(host, UUID) and on_card(host, OTHER_UUID), process)
        cluster.lose_first_gpu()
        kept = on_card(host, UUID)
        answer = answer_of(process)
    points = stored(host)
    assert each_once(points)
    assert all(point in points for point in kept)
    assert answer["windows"] == 4
    assert {point.gpu_uuid for point in points if point not in kept} == {OTHER_UUID}
    assert not (host.folder / "home/fanout/night").exists()


@pytest.mark.ray
@pytest.mark.nightly
def test_ctrl_c_ends_the_tasks_and_keeps_points(host: FakeHost) -> None:
    """The same command, on this host too, goes on from there."""
    variables = two_gpus(host)
    with (
        ray_cluster(host.environment(**variables)) as cluster,
        host.start_advisor(*ON_RAY, **cluster.environment) as process,
    ):
        until(lambda: on_card(host, UUID) and on_card(host, OTHER_UUID), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130, errors
        assert "the same command goes on from here" in errors
        assert host.control("get_server_list") == ""
    kept = stored(host)
    assert len(kept) >= 2
    answer = json.loads(host.advisor("colocate", *PLAN, "--dry-run", "--json", **variables).stdout)
    assert (answer["windows"], answer["to_measure"]) == (4, 4 - len(kept))


def on_card(host: FakeHost, uuid: str) -> list[PairPoint]:
    return [point for point in of_shards(host) if point.gpu_uuid == uuid]


# `--on slurm` on a real Slurm: array job, a node lost in mid-run, Ctrl-C; GPUs are fakes.


pytest.importorskip("submitit", reason="needs the extra slurm")

ON_SLURM = ("colocate", *PLAN, "--on", "slurm", "--shards", "2", "--json")


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


@pytest.mark.slurm
def test_a_lost_node_loses_no_point_and_none_is_measured_twice(
    host: FakeHost, cluster: Cluster, there: dict[str, str]
) -> None:
    """Slurm queues its shards again, and each goes on where it stopped."""
    with host.start_advisor(*ON_SLURM, **there, SBATCH_TIMELIMIT="2:00:00") as process:
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


@pytest.mark.slurm
@pytest.mark.nightly
def test_ctrl_c_keeps_points_and_the_same_command_goes_on(
    host: FakeHost, cluster: Cluster, there: dict[str, str]
) -> None:
    """Its shards leave Slurm's queue, and their points are in the store."""
    with host.start_advisor(*ON_SLURM, **there) as process:
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


@pytest.mark.slurm
@pytest.mark.nightly
def test_a_command_that_was_killed_goes_on(
    host: FakeHost, cluster: Cluster, there: dict[str, str]
) -> None:
    """Kill -9 leaves its shards in Slurm's queue; the same command ends them and takes over."""
    with host.start_advisor(*ON_SLURM, **there) as process:
        until(lambda: len(of_shards(host)) >= 2, process)
        process.kill()
    with host.start_advisor(*ON_SLURM, **there, SBATCH_JOB_NAME="mine") as process:
        answer_of(process)
    assert each_once(stored(host))
    assert cluster.run("squeue", "--noheader").stdout == ""


@pytest.mark.slurm
@pytest.mark.nightly
def test_a_shard_that_has_to_leave_is_queued_again(
    host: FakeHost, cluster: Cluster, there: dict[str, str]
) -> None:
    """Slurm's signal before the time limit, or for a job that is more urgent."""
    with host.start_advisor(*ON_SLURM, **there) as process:
        until(lambda: len(of_shards(host)) >= 2, process)
        (first, _) = cluster.run("squeue", "-h", "-r", "-o", "%i").stdout.split()
        cluster.run("scancel", "--signal=USR2", first)
        until(lambda: "PENDING" in cluster.run("squeue", "-h", "-r", "-o", "%T").stdout, process)
        kept = of_shards(host)
        cluster.run("scontrol", "update", f"JobId={first}", "StartTime=now")
        answer_of(process)
    assert each_once(stored(host))
    assert all(point in stored(host) for point in kept)


@pytest.mark.slurm
def test_slurm_that_refuses_says_why(host: FakeHost, there: dict[str, str]) -> None:
    """Options of the site are sbatch's own variables, and its error is ours."""
    done = host.advisor(*ON_SLURM, **there, SBATCH_PARTITION="nowhere")
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
