"""What Slurm's commands say: the queue in old and new forms, partitions, nodes, and the books."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from advisor.core.job import ProgressSettings
from advisor.errors import InputError, SourceError
from advisor.formats.job_file import watched_job
from advisor_node.slurm.matching import _Matching  # pyright: ignore[reportPrivateUsage]
from advisor_node.slurm.site import (
    Partition,
    SiteSettings,
    SlurmNode,
    SlurmTask,
    ask,
    book_faults,
    command_of_script,
    parse_minutes,
)

PLAIN = ProgressSettings()
CONFIG = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageTRES": "cpu,mem,gres/gpu,gres/mps",
    "AccountingStorageEnforce": "associations,limits",
    "JobDefaults": "DefCpuPerGPU=3",
}
PARTITION = (
    "PartitionName=p Default=YES DefaultTime=NONE ExclusiveUser=YES MaxTime=1-02:00:00 "
    "JobDefaults=DefMemPerGPU=1000 TRESBillingWeights=CPU=1.0,GRES/gpu=100.0,GRES/mps=1.0\n"
)


class Site:
    """Answers as Slurm's commands do."""

    def __init__(self, *jobs: dict[str, Any], **config: str) -> None:
        self.config = CONFIG | config
        self.partition, self.assoc, self.qos = PARTITION, "", ""
        self.told, self.refuses = list[tuple[str, ...]](), ""
        self.rows: dict[str, Sequence[dict[str, Any]]] = {"jobs": jobs, "nodes": []}

    def __call__(self, *words: str) -> str:
        if words[:3] == ("scontrol", "show", "config"):
            return "".join(f"{name:24}= {text}\n" for name, text in self.config.items())
        if words[1] in ("write", "update"):
            self.told.append(words)
            if self.refuses == words[1]:
                raise SourceError("scontrol failed")
            return "#!/bin/bash\nsrun -n 1 -l python train.py --lr 1 2>&1 | tee log\nwait\n"
        if words[0] == "scontrol":
            return self.partition
        if words[0] == "sacctmgr":
            return self.assoc if "assoc" in words else self.qos
        return json.dumps(self.rows)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"assoc": "work|alice|gres/gpu=4,gres/mps=400||||\nwork||cpu=4||||\n"}, ""),
        # Without books nothing is passed by; limits that Slurm does not enforce are none.
        ({"AccountingStorageType": "accounting_storage/none", "AccountingStorageTRES": "cpu"}, ""),
        ({"AccountingStorageEnforce": "none", "assoc": "work|alice||||gres/gpu=4|\n"}, ""),
        ({"AccountingStorageTRES": "cpu,gres/gpu"}, "gres/mps is not in AccountingStorageTRES"),
        ({"partition": PARTITION.replace(",GRES/mps=1.0", "")}, "write GRES/mps=1"),
        ({"partition": PARTITION.replace("mps=1.0", "mps=100.0")}, "write GRES/mps=1"),
        ({"assoc": "work|alice||||gres/gpu=4|\n"},
         "alice has MaxTRES=gres/gpu=4 without gres/mps: add gres/mps=400"),
        ({"qos": "urgent||gres/gpu=60|||||\n"},
         "qos urgent has GrpTRESMins=gres/gpu=60 without gres/mps"),
    ],
)  # fmt: skip
def test_what_the_books_would_not_see_is_named(change: dict[str, str], said: str) -> None:
    site = Site(**{name: text for name, text in change.items() if name in CONFIG})
    vars(site).update({name: text for name, text in change.items() if name not in CONFIG})
    found = [*book_faults(site)]
    assert said in found[0] if said else not found


def test_settings_that_are_not_there_are_installed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read") as raised:
        SiteSettings.read(tmp_path / "advisor.conf")
    assert raised.value.why == "No such file or directory"
    assert "docs/slurm.md" in raised.value.fix


def test_partitions_are_read() -> None:
    part = Partition.by_name(Site())["p"]
    assert (part.is_default, part.single_user, part.most_min, part.default_min) == (
        True,
        True,
        1560,
        None,
    )
    assert (part.cpus, part.memory_mib) == (3, 1000)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("00:30:00", 30), ("2-00:00:00", 2880), ("UNLIMITED", None), ("NONE", None), ("", None)],
)
def test_time_limits_are_read(text: str, minutes: float | None) -> None:
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize(
    ("gres", "shared", "types"),
    [("gpu:2,mps:200", True, [""]), ("gpu:h100:2(S:0-1),mps:200", True, ["h100"]),
     ("gpu:h100:1(S:0),gpu:a100:1,mps:200", True, ["a100", "h100"]), ("gpu:2,mps:100", False, [""]),
     ("gpu:2", False, [""]), ("", False, [])],
)  # fmt: skip
def test_nodes_are_read(gres: str, shared: bool, types: list[str]) -> None:
    site = Site()
    site.rows["nodes"] = [{"name": "n", "partitions": ["p"], "gres": gres, "cpus": 8,
                           "alloc_cpus": 3}]  # fmt: skip
    node = SlurmNode.by_name(site)["n"]
    assert (node.is_shared, node.free_cpus, node.partitions) == (shared, 5, ("p",))
    assert sorted(node.types) == types


def row(**more: Any) -> dict[str, Any]:
    """A job as Slurm 22.05 has it."""
    usual: dict[str, Any] = {
        "job_id": 7, "array_job_id": 0, "array_task_id": None, "job_state": "PENDING",
        "comment": "advisor:job=a", "tres_per_node": "gres:mps:100", "user_name": "u",
        "partition": "p", "priority": 5, "eligible_time": 1000, "time_limit": 30, "cpus": 2,
        "state_reason": "BeginTime", "gres_detail": [], "required_nodes": "", "nodes": "",
    }  # fmt: skip
    return usual | more


def wrapped(number: int | None) -> dict[str, Any]:
    return {"set": number is not None, "infinite": False, "number": number or 0}


@pytest.mark.parametrize(
    "newer",
    [
        {},
        {"array_job_id": wrapped(0), "array_task_id": wrapped(None), "priority": wrapped(5),
         "eligible_time": wrapped(1000), "time_limit": wrapped(30), "cpus": wrapped(2),
         "job_state": ["PENDING"], "tres_per_node": "gres/mps:100"},
    ],
)  # fmt: skip
def test_a_waiting_job_is_read(newer: dict[str, Any]) -> None:
    [job] = SlurmTask.queue(Site(row(**newer)))
    assert (job.key, job.undecided, job.eligible_s, job.limit_min, job.cpus) == (
        "7",
        True,
        1000,
        30,
        2,
    )


def test_tasks_of_an_array_are_jobs() -> None:
    waits = row(array_job_id=9, array_task_string="1-3,7%2")
    runs = {"job_id": 10, "array_job_id": 9, "array_task_id": 0, "job_state": "RUNNING"}
    jobs = SlurmTask.queue(Site(waits, row(**runs, nodes="n1", gres_detail=["mps:30(IDX:1)"])))
    assert [job.key for job in jobs] == ["9_0", "9_1", "9_2", "9_3", "9_7"]
    assert jobs[0].cards == {("n1", 1): 30}


NODES = {"allocated_nodes": [{"nodename": "n1"}, {"nodename": "n2"}]}
NODES_24 = {"nodes": {"list": "n[1-2]", "allocation": [{"name": "n1"}, {"name": "n2"}]}}


@pytest.mark.parametrize(
    ("fields", "cards"),
    [
        ({"job_resources": NODES, "gres_detail": ["gpu:h100:2(IDX:0,3)", "gpu:1(IDX:1)"]},
         {("n1", 0): 100, ("n1", 3): 100, ("n2", 1): 100}),
        # As 24.11.5 writes it: parts by GPU, and nodes in another place.
        ({"job_state": ["RUNNING"], "nodes": "n1", "gres_detail": ["mps:60(0/100,60/100)"]},
         {("n1", 1): 60}),
        ({"job_state": ["RUNNING"], "job_resources": NODES_24, "gres_detail": ["gpu:1(IDX:0)"] * 2},
         {("n1", 0): 100, ("n2", 0): 100}),
    ],
)  # fmt: skip
def test_cards_of_running_jobs_are_read(
    fields: dict[str, Any], cards: dict[tuple[str, int], int]
) -> None:
    [job] = SlurmTask.queue(Site(row(**({"job_state": "RUNNING", "comment": ""} | fields))))
    assert (job.cards, job.named) == (cards, None)


def test_nodes_of_later_versions_are_read() -> None:
    node = {"name": "n1", "partitions": ["p"], "gres": "gpu:2,mps:200", "cpus": 8, "alloc_cpus": 1}
    said = {"sinfo": {"sinfo": [{"nodes": {"total": 1}}]}, "scontrol": {"nodes": [node]}}
    [found] = SlurmNode.by_name(lambda *words: json.dumps(said[words[0]])).values()
    assert (found.gpus, found.is_shared, found.free_cpus) == (2, True, 7)


@pytest.mark.parametrize(
    ("weights", "limit", "said"),
    [
        ("GRES/gpu:h200=100,GRES/mps=1", "gres/gpu:h200=4,gres/mps=400", ""),
        ("GRES/gpu=50,GRES/gpu:h200=50,GRES/gpu:a100=20,GRES/mps=1", "", ""),
        ("GRES/gpu:h200=100", "", "write GRES/mps=1"),
        ("", "gres/gpu:h200=4", "add gres/mps=400"),
        ("", "cpu=8,gres/gpu:a100=1,gres/gpu:h200=4", "add gres/mps=500"),
        ("", "gres/gpu=6,gres/gpu:h200=4", "add gres/mps=600"),
    ],
)
def test_limits_and_prices_of_a_type_of_gpu_count(weights: str, limit: str, said: str) -> None:
    """A site that names types everywhere would have bounded and billed no job that shares."""
    site = Site()
    site.partition = f"PartitionName=p TRESBillingWeights=CPU=1.0,{weights} State=UP"
    site.assoc = f"work|alice|{limit}||||"
    assert [fault.split(": ")[-1] for fault in book_faults(site)] == ([said] if said else [])


@pytest.mark.parametrize(
    "more",
    [{"priority": 0}, {"state_reason": "Dependency"}, {"tres_per_node": "gres:mps:30"},
     {"comment": "advisor:job=../a"}, {"comment": "advisor:job=a,share=30,counted=50"}],
)  # fmt: skip
def test_some_jobs_do_not_wait_for_us(more: dict[str, Any]) -> None:
    assert not SlurmTask.queue(Site(row(**more)))[0].undecided


@pytest.mark.parametrize("text", ["", "[]", "{}", "no"])
def test_no_answer_in_json_is_said(text: str) -> None:
    with pytest.raises(SourceError, match="has no jobs"):
        SlurmTask.queue(lambda *_words: text)


def test_a_command_that_fails_or_is_not_there_is_said() -> None:
    with pytest.raises(SourceError, match="could not be asked"):
        ask("/no/such/scontrol", "show")
    with pytest.raises(SourceError, match="false failed"):
        ask("false")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\n#SBATCH -p gpu\ncd x\npython train.py --lr '1 2'\necho done\n",
         ["python", "train.py", "--lr", "1 2"]),
        ("srun -n 1 --gres=gpu:1 -l \\\n  ./nbody -n 9 > out\nwait", ["./nbody", "-n", "9"]),
        ("OMP_NUM_THREADS=4 exec python -m pkg.train & wait", ["python", "-m", "pkg.train"]),
        ("module load cuda\n./nbody 9", ["./nbody", "9"]),
        ("#!/bin/bash\n# nothing\n", None),
        ("python 'train.py", None),
    ],
)  # fmt: skip
def test_a_batch_script_is_known_by_what_its_process_is(
    script: str, words: list[str] | None
) -> None:
    with nullcontext() if words else pytest.raises(InputError, match="runs nothing"):
        assert command_of_script(script) == words


def look_twice(site: Site, folder: Path) -> None:
    """What was asked at the first look is not asked again."""
    settings = SiteSettings(
        address="http://127.0.0.1:9", wait_s=60, gpu_model=None, facts=folder / "facts"
    )
    advice = Mock(answers=lambda _asked: {})  # pyright: ignore[reportUnknownLambdaType]
    one = _Matching(settings, advice, folder / "jobs", site)
    one.look()
    one.look()


def test_an_auto_job_gets_the_name_that_its_process_has(tmp_path: Path) -> None:
    """Asked once for an array; what else its user wishes stays."""
    (tmp_path / "train.py").write_text("steps")
    more = {"comment": "x advisor:job=auto,p99=5", "current_working_directory": str(tmp_path)}
    site = Site(*(row(**more, array_job_id=7, array_task_id=n) for n in (1, 2)), row(job_id=9))
    look_twice(site, tmp_path)
    name = watched_job(("/usr/bin/python3", f"{tmp_path}/train.py", "--lr", "1"), None, PLAIN).name
    assert site.told == [
        ("scontrol", "write", "batch_script", "7", "-"),
        ("scontrol", "update", "JobId=7", f"Comment=x advisor:job={name},p99=5"),
    ]


@pytest.mark.parametrize(("refuses", "asked"), [("write", 1), ("update", 2)])
def test_an_auto_job_that_cannot_be_named_is_left_alone(
    tmp_path: Path, refuses: str, asked: int
) -> None:
    site = Site(row(comment="advisor:job=auto"))
    site.refuses = refuses
    look_twice(site, tmp_path)
    assert len(site.told) == asked
