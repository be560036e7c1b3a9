"""`--on` without a cluster: what reaches the one store, what is answered, and what is refused."""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, in_this_process
from host import FakeHost

from advisor.formats.rows import flat
from advisor_cli.measure.profile import show_profiles
from advisor_data import open_store
from advisor_profiling import fanout
from advisor_profiling.fanout import Ended, Shard, Submit, run_shard

pytestmark = pytest.mark.slow

NODES = ("--on", "slurm", "--shards", "2")
COLOCATE = ("colocate", "--pairs", "one+two,two+two", "--splits", "50/50", "--window", "0.5")


class EngineHere:
    """Runs shards while they are submitted, as on a node with GPU 0."""

    def __init__(self) -> None:
        self.submitted: list[Shard] = []

    def submit(self, shards: Sequence[Shard]) -> Ended:
        self.submitted += shards
        for shard in shards:
            run_shard(shard, {**os.environ, "CUDA_VISIBLE_DEVICES": "0"})
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
