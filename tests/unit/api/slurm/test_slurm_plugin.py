"""The Lua plugin by itself: which jobs wait for others, and what it leaves alone."""

import time
from pathlib import Path

import pytest
from slurm_lua import BATCH, INTERPRETERS, Plugin, install, write_settings

from advisor.core.wording import printable

NEEDS = "needs a Lua interpreter (Debian package lua5.1, lua5.3 or lua5.4)"
pytestmark = pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
NO_VAL = 4294967294


@pytest.fixture(params=INTERPRETERS)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Plugin:
    return install(request.param, tmp_path / "etc")


def test_a_job_that_names_itself_waits_for_others(plugin: Plugin) -> None:
    job = plugin.submit_one(time_limit=30)
    assert job["tres_per_node"] == "gres:mps:100"
    assert abs(float(job["begin_time"]) - time.time() - 60) < 5
    assert job["admin_comment"] == job["said"]
    assert job["said"].startswith("advisor: waits 60 s at most for who is to share its GPU")
    assert job["comment"] == BATCH["comment"]


def test_a_job_that_begins_later_waits_from_then(plugin: Plugin) -> None:
    later = int(time.time()) + 5000
    assert float(plugin.submit_one(begin_time=later)["begin_time"]) == later + 60


@pytest.mark.parametrize(
    "fields",
    [
        *({"tres_per_node": f"gres{asked}"}
          for asked in (":gpu", ":gpu:h100:1", ":gpu:h100", "/gpu:1", "/gpu=1")),
        {"comment": "my run advisor:job=a,p99=40,speed=0.6 v2"},
        {"comment": "project=x;Advisor:job=a"},
        {"min_nodes": NO_VAL},
        # `--gpus=1` and gres/mps together would be refused: it moves to the node.
        {"tres_per_node": "", "tres_per_job": "gres:gpu:1"},
    ],
)  # fmt: skip
def test_requests_for_one_gpu_are_rewritten(plugin: Plugin, fields: dict[str, str | int]) -> None:
    job = plugin.submit_one(**fields)
    mark = "/" if "gres/" in str(fields) else ":"
    assert (job["tres_per_node"], job.get("tres_per_job", "")) == (f"gres{mark}mps:100", "")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tres_per_node": "gres:gpu:2"}, "not one GPU"),
        ({"tres_per_node": "gres:gpu:h100:8"}, "not one GPU"),
        ({"tres_per_node": "gres:gpu:1,gres:nic:1"}, "not one GPU"),
        ({"tres_per_node": "gres:mps:30"}, "not one GPU"),
        ({"tres_per_node": "gres:shard:4"}, "not one GPU"),
        ({"tres_per_node": ""}, "does not ask for a GPU"),
        ({"tres_per_task": "gres:gpu:1"}, "by --gres or --gpus alone"),
        ({"tres_per_socket": "gres:gpu:1"}, "by --gres or --gpus alone"),
        ({"tres_per_job": "gres:gpu:4"}, "asks for GPUs twice"),
        ({"min_nodes": 2}, "several nodes"),
        ({"shared": 0}, "--exclusive"),
        ({"het_job_offset": 1}, "heterogeneous"),
        ({"req_nodes": "n1"}, "names its node"),
        ({"tres_freq": "gpu:high"}, "sets their clock"),
        ({"partition": "cpus"}, "nothing is known of partition cpus"),
        ({"cpus_per_tres": "gres:gpu:4", "num_tasks": 2}, "several tasks"),
        ({"cpus_per_tres": "gres:nic:4"}, "a form that is not known"),
    ],
)
def test_what_cannot_share_stays_as_it_is(
    plugin: Plugin, fields: dict[str, str | int], why: str
) -> None:
    job = plugin.submit_one(**fields)
    for name, value in (BATCH | fields).items():
        assert job[name] == str(value)
    assert why in job["admin_comment"]


def test_srun_stays_as_it_is(plugin: Plugin) -> None:
    [done] = plugin.submit({key: value for key, value in BATCH.items() if key != "script"})
    assert done["tres_per_node"] == "gres:gpu:1"
    assert "only batch jobs" in done["admin_comment"]


@pytest.mark.parametrize("comment", ["", "my run", "radvisor:job=a", "advisor job=a"])
def test_other_jobs_are_left_alone(plugin: Plugin, comment: str) -> None:
    job = plugin.submit_one(comment=comment)
    assert (job["tres_per_node"], job["said"]) == ("gres:gpu:1", "")
    assert "admin_comment" not in job


@pytest.mark.parametrize(
    "word",
    ["job=a,share=90", "job=a,counted=1", "job=a,memory=9", "job=A", "with=b", "job=a,job=b",
     "job=a,", "job=../a", "job=$(id)", "", "job=a,p99=fast"],
)  # fmt: skip
def test_a_share_is_not_the_users_to_say(plugin: Plugin, word: str) -> None:
    """What cannot be meant is taken out, so that no script of root's reads it."""
    job = plugin.submit_one(comment=f"mine advisor:{word} run")
    assert (job["tres_per_node"], job["comment"]) == ("gres:gpu:1", "mine  run")
    assert job["said"].startswith("advisor: unchanged: advisor:")


@pytest.mark.parametrize(
    "word", ["job=a" + "," * 100_000, "x" * 100_000, "\x1b]0\x07\x9b2Jy\u202e"]
)
def test_a_comment_neither_floods_nor_steers_who_reads_the_reason(
    plugin: Plugin, word: str
) -> None:
    job = plugin.submit_one(comment=f"advisor:{word}")
    for text in job["said"], job["admin_comment"]:
        assert text.startswith("advisor: unchanged: advisor:")
        assert len(text) < 500
        assert printable(text) == text


# What a GPU brings


def test_what_is_asked_for_each_gpu_is_kept(plugin: Plugin) -> None:
    """Slurm refuses such options without a GPU."""
    job = plugin.submit_one(cpus_per_tres="gres:gpu:4", mem_per_tres="gres:gpu:2048")
    assert job["tres_per_node"] == "gres:mps:100"
    assert (job["cpus_per_task"], job["min_cpus"], job["min_mem_per_node"]) == ("4", "4", "2048")
    assert (job["cpus_per_tres"], job["mem_per_tres"]) == ("", "")


def test_defaults_for_each_gpu_are_kept(plugin: Plugin) -> None:
    plugin.tell({"partition.gpus": "ok cpus=3 mib=1000"})
    assert plugin.submit_one(cpus_per_task=65534)["cpus_per_task"] == "3"
    assert plugin.submit_one()["min_mem_per_node"] == "1000"
    own = plugin.submit_one(cpus_per_task=8, pn_min_memory=500)
    assert own["cpus_per_task"] == "8"
    assert "min_mem_per_node" not in own


# What the site says


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"books": "gres/mps is not in AccountingStorageTRES"}, "not in AccountingStorageTRES"),
        ({"partition.gpus": "no GPUs are not counted"}, "in partition gpus GPUs are not counted"),
        ({"default": "other"}, "nothing is known of partition other"),
    ],
)
def test_nothing_is_rewritten_where_the_books_would_not_see_it(
    plugin: Plugin, facts: dict[str, str], why: str
) -> None:
    plugin.tell(facts)
    job = plugin.submit_one()
    assert job["tres_per_node"] == "gres:gpu:1"
    assert why in job["said"]


@pytest.mark.parametrize(
    ("fact", "types"),
    [("ok types=a100+h100", "a100+h100"), ("ok types=none", "none"), ("ok", "none")],
)
def test_the_type_of_a_gpu_is_not_lost(plugin: Plugin, fact: str, types: str) -> None:
    plugin.tell({"partition.gpus": fact})
    job = plugin.submit_one(tres_per_node="gres:gpu:h100:1")
    assert job["tres_per_node"] == "gres:gpu:h100:1"
    assert f"asks for h100, and partition gpus has GPUs of type {types}" in job["said"]
    assert plugin.submit_one()["tres_per_node"] == "gres:mps:100"


@pytest.mark.parametrize(
    ("policy", "request_text"), [("pass", "gres:gpu:1"), ("whole", "gres:mps:100")]
)
def test_without_who_decides_nobody_waits(plugin: Plugin, policy: str, request_text: str) -> None:
    write_settings(plugin.etc, "http://x", without_advice=policy, facts=str(plugin.etc / "facts"))
    plugin.tell(ago_s=60)
    job = plugin.submit_one()
    assert job["tres_per_node"] == request_text
    assert "begin_time" not in job
    assert "`advisor slurm match` does not run" in job["said"]


@pytest.mark.parametrize("name", ["facts", "advisor/advisor.conf"])
def test_a_lost_file_passes_jobs(plugin: Plugin, name: str) -> None:
    (plugin.etc / name).unlink()
    job = plugin.submit_one()
    assert (job["code"], job["tres_per_node"]) == ("0", "gres:gpu:1")


@pytest.mark.parametrize("text", ["", "\0\xff", "= = =\n" * 9, "written_at = soon", "x" * 10**6])
def test_nonsense_for_facts_passes_jobs(plugin: Plugin, text: str) -> None:
    (plugin.etc / "facts").write_text(text)
    assert plugin.submit_one()["tres_per_node"] == "gres:gpu:1"


# Changes of jobs

DECIDED = "advisor:job=a,share=30,counted=50"


@pytest.mark.parametrize("field", ["comment", "tres_per_node", "tres_per_job"])
def test_what_was_decided_is_not_its_users_to_change(plugin: Plugin, field: str) -> None:
    fields = {field: "gres:mps:1"}
    assert not plugin.may_modify(DECIDED, 1000, **fields)
    assert plugin.may_modify(DECIDED, 0, **fields)
    assert plugin.may_modify(DECIDED, 64030, **fields)


def test_other_changes_are_free(plugin: Plugin) -> None:
    assert plugin.may_modify(DECIDED, 1000, name="new")
    assert plugin.may_modify("mine", 1000, comment="other", tres_per_node="gres:gpu:2")
    assert not plugin.may_modify("mine", 1000, comment=DECIDED)
