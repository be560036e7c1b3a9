"""`--on` without a cluster: what reaches the one store, what is answered, and what is refused."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, in_this_process
from engine_here import EngineHere
from host import FakeHost

from advisor.formats.flat_rows import flat
from advisor_cli.measure import on_nodes
from advisor_cli.measure.profile_on_nodes import show_profiles
from advisor_data import open_store

REPLAY = ("colocate", "--pairs", "gemm+gemm,albert-train+reduction", "--gpu", "replay", "--json")
NODES = ("--on", "slurm", "--shards", "2")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> EngineHere:
    """Stands for each engine that a command asks for."""
    made = EngineHere()

    def engine_of(*_asked: object) -> EngineHere:
        return made

    monkeypatch.setattr(on_nodes, "_engine", engine_of)
    return made


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    return in_this_process(capsys, monkeypatch, tmp_path)


def windows(answer: dict[str, Any]) -> Counter[tuple[Any, ...]]:
    """Each window with what was measured in it, but for the last digits: a replay has a clock."""
    names = ("job_1", "job_2", "mode", "share_1_percent", "share_2_percent")
    values = ("rate_1", "power_w")
    return Counter(
        (*(row[name] for name in names), *(f"{row[name]:.9g}" for name in values))
        for row in map(flat, answer["points"])
    )


def test_shards_give_what_one_host_gives(
    advisor: Advisor, engine: EngineHere, tmp_path: Path
) -> None:
    """The same windows with the same values, under the same keys, and nothing left in folders."""
    here = json.loads(advisor(*REPLAY).out)
    said = advisor(*REPLAY, *NODES)
    nodes = json.loads(said.out)
    assert len(engine.submitted) == 2
    assert windows(nodes) == windows(here)
    assert set(nodes) == set(here)
    assert set(nodes["cost"]) == set(here["cost"])
    assert nodes["measured"] == nodes["windows"]
    assert {row["job_1"] for row in map(flat, nodes["points"])} == {"albert-train", "gemm"}
    assert list((tmp_path / "home/fanout").glob("*/*")) == []


def test_profiles_have_the_keys_of_one_profile(
    advisor: Advisor, engine: EngineHere, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list of what `advisor profile` answers for each job, in the order that was asked for."""
    words = ("profile", "gemm", "triad", "--gpu", "replay", "--shares", "50,100", "--on", "ray")
    profiles = json.loads(advisor(*words, "--json").out)["profiles"]
    one = profiles[0]
    assert set(one) == {
        "job", "gpu_model", "gpu_uuid", "replay", "run", "points", "failures",
        "idle_power_before_w", "idle_power_after_w", "duration_s", "problems",
    }  # fmt: skip
    assert [point["share_percent"] for point in one["points"]] == [50, 100]
    assert [shard.name.split("-")[0] for shard in engine.submitted] == ["gemm", "triad"]
    show_profiles(profiles, as_json=False)
    assert "triad on NVIDIA H200 (replay" in capsys.readouterr().out


@pytest.mark.postgres
def test_shards_write_into_postgresql_themselves(
    advisor: Advisor,
    engine: EngineHere,
    host: FakeHost,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their points are in the one database, once, and not in files as well."""
    host.write_job("one")
    for name, text in host.environment(ADVISOR_DATABASE_URL=postgres_url).items():
        monkeypatch.setenv(name, text)
    words = ("--pairs", "one+one", "--splits", "50/50", "--window", "0.5", "--run", "night")
    said = advisor("colocate", *words, "--on", "ray", "--shards", "1", "--json")
    assert said.code == 0, said.err
    assert [flat(row)["job_1"] for row in json.loads(said.out)["points"]] == ["one"]
    with open_store(postgres_url, host.folder) as store:
        assert len(store.pair_points(run="night")) == 1
    assert "ADVISOR_DATABASE_URL" not in engine.submitted[0].environment


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("colocate", "--among", "gemm", "--on", "ray"), "--on and --shards belong together"),
        (("colocate", "--among", "gemm", "--shards", "2"), "--on and --shards belong together"),
        (("colocate", "--among", "gemm", *NODES, "--shard", "1/2"), "give --shards alone"),
        (("colocate", "--among", "gemm", *NODES, "--gpu", "1"), "the engine chooses the GPU"),
        (("profile", "gemm", "gemm", "--on", "ray", "--gpu", "replay"), "gemm is named twice"),
        (("profile", "--name", "x", "--on", "ray", "--", "true"), "write a job file"),
    ],
)
def test_what_cannot_be_combined_is_refused(
    advisor: Advisor, engine: EngineHere, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    """With what to write instead, before anything is submitted."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/gemm.yaml").write_text('{"command": ["true"], "progress": {"kind": "runs"}}')
    said = advisor(*words)
    assert said.code == 2, said.err
    assert message in said.err
    assert engine.submitted == []
