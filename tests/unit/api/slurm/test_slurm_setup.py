"""What `setup.sh` writes, refuses and removes, and the scripts that Slurm runs around a job."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from slurm_cluster import SETUP, environment, run_setup
from slurm_lua import BATCH, INTERPRETERS, Plugin, install, write_settings

from advisor.core.wording import printable

OURS = {"slurm.conf", "gres.conf", "job_submit.lua", "advisor"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    return tmp_path


def set_up(folder: Path, command: str, said: str = "", **more: str) -> Path:
    """Run `setup.sh`, which says this where it fails; the folder that it writes to."""
    done = run_setup(folder, command, more=more)
    assert done.returncode == bool(said), done.stderr
    assert said in done.stderr
    return folder / "etc"


def contents(etc: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in etc.rglob("*") if path.is_file()}


def test_what_was_installed_is_removed(folder: Path) -> None:
    (folder / "etc/plugstack.conf").write_text("theirs")
    etc = set_up(folder, "install")
    assert {path.name for path in etc.iterdir()} == {*OURS, "plugstack.conf"}
    set_up(folder, "remove")
    assert [path.name for path in etc.iterdir()] == ["plugstack.conf"]


@pytest.mark.parametrize("name", ["slurm.conf", "gres.conf", "job_submit.lua"])
def test_a_configuration_of_others_is_not_touched(folder: Path, name: str) -> None:
    (folder / "etc" / name).write_text("theirs")
    for command, word in (("install", f"{name} is there already"), ("remove", "not of setup.sh")):
        set_up(folder, command, word)
        assert contents(folder / "etc") == {str(folder / "etc" / name): "theirs"}


@pytest.mark.parametrize("name", ["slurm.conf", "advisor/advisor.conf"])
def test_what_was_changed_since_is_left(folder: Path, name: str) -> None:
    etc = set_up(folder, "install")
    with (etc / name).open("a") as file:
        file.write("# mine\n")
    set_up(folder, "remove", f"setup.sh: left, since they were changed: {etc / name}\n")
    gres = [str(etc / "gres.conf")] if name == "slurm.conf" else []
    assert sorted(contents(etc)) == [*gres, str(etc / name)]
    if name == "slurm.conf":
        left = (etc / name).read_text()
        assert "\n# TaskProlog=" in left
        assert not re.search("^[^#].*(olog=|Epilog=|JobSubmitPlugins)", left, re.MULTILINE)


def test_nothing_is_written_without_the_driver(folder: Path) -> None:
    done = subprocess.run(
        [SETUP, "install"],
        env={
            "PATH": "/usr/bin:/bin",
            "SLURM_FOLDER": str(folder / "etc"),
            "GPU_FILES": "/dev/null",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if shutil.which("nvidia-cuda-mps-control", path="/usr/bin:/bin"):
        pytest.skip("this host has NVIDIA's driver")
    assert done.returncode == 1
    assert "nvidia-cuda-mps-control is missing" in done.stderr
    assert contents(folder / "etc") == {}


@pytest.mark.parametrize(
    ("address", "books", "by_name"),
    [("127.0.0.1", "", True), ("127.0.1.1", "", True), ("10.0.0.5", "", True),
     ("127.0.0.1", "localhost", True), ("127.0.1.1", "localhost", False)],
)  # fmt: skip
def test_slurm_is_where_the_name_of_the_host_leads(
    folder: Path, address: str, books: str, by_name: bool
) -> None:
    """It listens there: at 127.0.0.1 nobody answers on a Debian, whose name is 127.0.1.1."""
    more = {**_named(folder, address), "BOOKS": books, "GPU_TYPE": "h200"}
    done = run_setup(folder, "install", more=more)
    assert done.returncode == 0, done.stderr
    assert ("other hosts reach it" in done.stdout) == (address == "10.0.0.5")
    conf = (folder / "etc/slurm.conf").read_text()
    assert conf.count(f"({address})") == conf.count(f"NodeAddr={address} ") == 1
    assert ("NoCtldInAddrAny" in conf) == by_name
    assert "Gres=gpu:h200:1,mps:100" in conf
    assert ("gres/gpu,gres/gpu:h200,gres/mps" in conf) == bool(books)
    assert "Name=gpu Type=h200 File=" in (folder / "etc/gres.conf").read_text()


def test_nothing_is_written_where_the_host_has_no_address(folder: Path) -> None:
    set_up(folder, "install", "has no address", **_named(folder, ""))
    assert contents(folder / "etc") == {}


def _named(folder: Path, address: str) -> dict[str, str]:
    """Variables of a host whose name has this address."""
    (folder / "bin").mkdir()
    (folder / "bin/getent").write_text(
        f"#!/bin/sh\n[ -z '{address}' ] || echo '{address} STREAM'\n"
    )
    (folder / "bin/getent").chmod(0o755)
    return {"PATH": f"{folder}/bin:{environment(folder)['PATH']}"}


def test_the_page_has_every_line(folder: Path) -> None:
    etc, page = set_up(folder, "install"), (SETUP.parents[2] / "docs/slurm.md").read_text()
    for name in ("slurm.conf", "gres.conf"):
        for line in (etc / name).read_text().splitlines():
            for word in line.split():
                setting = word.partition("=")[0]
                assert f"{setting}=" in page, f"{name}: {setting}"


# TaskProlog


def task_prolog(folder: Path, code: int, **variables: str) -> list[str]:
    if not (folder / "etc/slurm.conf").exists():
        set_up(folder, "install")
    done = subprocess.run(
        [folder / "etc/advisor/task_prolog.sh"],
        env={"SLURM_JOB_ID": "42", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout.splitlines()


@pytest.fixture
def job(folder: Path) -> Path:
    """The folder of a job as the Prolog leaves it."""
    job = folder / f"mps/gpu2-{os.getuid()}/jobs/42"
    job.mkdir(parents=True)
    (job / "share").write_text("26.5")
    (job / "progress").touch()
    return job


def test_the_share_is_the_one_that_root_wrote(folder: Path, job: Path) -> None:
    theirs = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "ADVISOR_SHARE_PERCENT": "100"}
    assert task_prolog(folder, 0, **theirs) == [
        f"export CUDA_MPS_PIPE_DIRECTORY={job.parents[1]}/pipe",
        "export CUDA_VISIBLE_DEVICES=0",
        "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=26.5",
        *(f"unset SLURM_{name}" for name in ("GPUS", "CPUS_PER_GPU", "MEM_PER_GPU")),
        "unset CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        f"export ADVISOR_PROGRESS_FILE={job}/progress",
    ]


def test_memory_is_bounded_and_the_job_is_told(folder: Path, job: Path) -> None:
    (job / "memory").write_text("2512")
    said = "print advisor: at most 2512 MiB of GPU memory: what asks for more fails as on a "
    said += "smaller card"
    lines = task_prolog(folder, 0)
    assert all(part in lines for part in ("export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2512M", said))
    assert said not in task_prolog(folder, 0, SLURM_STEP_ID="0")


def test_a_job_without_a_daemon_is_requeued_once_and_refused(folder: Path, tmp_path: Path) -> None:
    """It would run without a limit; for one that Slurm sends again it runs no Prolog."""
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" >> "${0%/*}/asked"\n')
    (tmp_path / "scontrol").chmod(0o755)
    given = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told, line = task_prolog(folder, 1, **given)
    assert told == "print advisor: the job is requeued, this once"
    for again in ({"SLURM_RESTART_COUNT": "1"}, {"SLURM_STEP_ID": "0"}):
        assert task_prolog(folder, 1, **{**given, **again}) == [line]
    assert line.startswith("print advisor: no MPS daemon of yours answers")
    assert (tmp_path / "asked").read_text() == "requeue 42\n"


def test_other_jobs_lose_what_a_parent_had(folder: Path) -> None:
    assert task_prolog(folder, 0) == []
    assert task_prolog(folder, 0, CUDA_MPS_PIPE_DIRECTORY="/tmp/mine") == []
    pipe, progress = f"{folder}/mps/gpu0-0/pipe", f"{folder}/mps/gpu0-0/jobs/7/progress"
    lines = task_prolog(folder, 0, CUDA_MPS_PIPE_DIRECTORY=pipe, ADVISOR_PROGRESS_FILE=progress)
    limits = ("PIPE_DIRECTORY", "ACTIVE_THREAD_PERCENTAGE", "PINNED_DEVICE_MEM_LIMIT")
    assert lines == [
        "unset ADVISOR_PROGRESS_FILE", *(f"unset CUDA_MPS_{name}" for name in limits)
    ]  # fmt: skip


def test_of_several_tasks_one_counts(folder: Path, job: Path) -> None:
    lines = task_prolog(folder, 0, SLURM_PROCID="1", ADVISOR_PROGRESS_FILE=f"{job}/progress")
    assert "unset ADVISOR_PROGRESS_FILE" in lines
    assert not any("export ADVISOR_PROGRESS_FILE" in line for line in lines)


# The Lua plugin by itself: which jobs wait for others, and what it leaves alone.


NEEDS = "needs a Lua interpreter (Debian package lua5.1, lua5.3 or lua5.4)"
NO_VAL = 4294967294


@pytest.fixture(params=INTERPRETERS)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Plugin:
    return install(request.param, tmp_path / "etc")


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
def test_a_job_that_names_itself_waits_for_others(plugin: Plugin) -> None:
    job = plugin.submit_one(time_limit=30)
    assert job["tres_per_node"] == "gres:mps:100"
    assert abs(float(job["begin_time"]) - time.time() - 60) < 5
    assert job["admin_comment"] == job["said"]
    assert job["said"].startswith("advisor: waits 60 s at most for a partner")
    assert job["comment"] == BATCH["comment"]


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
def test_a_job_that_begins_later_waits_from_then(plugin: Plugin) -> None:
    later = int(time.time()) + 5000
    assert float(plugin.submit_one(begin_time=later)["begin_time"]) == later + 60


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
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


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
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


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
def test_srun_stays_as_it_is(plugin: Plugin) -> None:
    [done] = plugin.submit({key: value for key, value in BATCH.items() if key != "script"})
    assert done["tres_per_node"] == "gres:gpu:1"
    assert "only batch jobs" in done["admin_comment"]


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
@pytest.mark.parametrize("comment", ["", "my run", "radvisor:job=a", "advisor job=a"])
def test_other_jobs_are_left_alone(plugin: Plugin, comment: str) -> None:
    job = plugin.submit_one(comment=comment)
    assert (job["tres_per_node"], job["said"]) == ("gres:gpu:1", "")
    assert "admin_comment" not in job


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
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


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
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


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
def test_what_is_asked_for_each_gpu_is_kept(plugin: Plugin) -> None:
    """Slurm refuses such options without a GPU."""
    job = plugin.submit_one(cpus_per_tres="gres:gpu:4", mem_per_tres="gres:gpu:2048")
    assert job["tres_per_node"] == "gres:mps:100"
    assert (job["cpus_per_task"], job["min_cpus"], job["min_mem_per_node"]) == ("4", "4", "2048")
    assert (job["cpus_per_tres"], job["mem_per_tres"]) == ("", "")


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
def test_defaults_for_each_gpu_are_kept(plugin: Plugin) -> None:
    plugin.tell({"partition.gpus": "ok cpus=3 mib=1000"})
    assert plugin.submit_one(cpus_per_task=65534)["cpus_per_task"] == "3"
    assert plugin.submit_one()["min_mem_per_node"] == "1000"
    own = plugin.submit_one(cpus_per_task=8, pn_min_memory=500)
    assert own["cpus_per_task"] == "8"
    assert "min_mem_per_node" not in own


# What the site says


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
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


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
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


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
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


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
@pytest.mark.parametrize("name", ["facts", "advisor/advisor.conf"])
def test_a_lost_file_passes_jobs(plugin: Plugin, name: str) -> None:
    (plugin.etc / name).unlink()
    job = plugin.submit_one()
    assert (job["code"], job["tres_per_node"]) == ("0", "gres:gpu:1")


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
@pytest.mark.parametrize("text", ["", "\0\xff", "= = =\n" * 9, "written_at = soon", "x" * 10**6])
def test_nonsense_for_facts_passes_jobs(plugin: Plugin, text: str) -> None:
    (plugin.etc / "facts").write_text(text)
    assert plugin.submit_one()["tres_per_node"] == "gres:gpu:1"


# Changes of jobs

DECIDED = "advisor:job=a,share=30,counted=50"


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
@pytest.mark.parametrize("field", ["comment", "tres_per_node", "tres_per_job"])
def test_what_was_decided_is_not_its_users_to_change(plugin: Plugin, field: str) -> None:
    fields = {field: "gres:mps:1"}
    assert not plugin.may_modify(DECIDED, 1000, **fields)
    assert plugin.may_modify(DECIDED, 0, **fields)
    assert plugin.may_modify(DECIDED, 64030, **fields)


@pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)
def test_other_changes_are_free(plugin: Plugin) -> None:
    assert plugin.may_modify(DECIDED, 1000, name="new")
    assert plugin.may_modify("mine", 1000, comment="other", tres_per_node="gres:gpu:2")
    assert not plugin.may_modify("mine", 1000, comment=DECIDED)
