"""Gates that open together, and what is set before a job or a supervisor starts."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pytest
from ended_launches import PAIR
from hypothesis import given
from hypothesis import strategies as st
from scripted_jobs import GPU, Clock

from advisor.core.gpu import HOLDERS, TIME_SLICED, Gpu, Split
from advisor.core.job import Job
from advisor.core.records import SETTLE_S
from advisor.errors import NoSplitError
from advisor.launch import start
from advisor.launch.folder import create_folder
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec
from advisor.runtime import processes
from advisor.settings import read_settings

SETS = st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.floats(1e-4, 1e4)), min_size=1, max_size=7
)


def opened(jobs: list[tuple[str, float | None]]) -> list[float]:
    clock, at_s = Clock(0.0), [-1.0] * len(jobs)

    def job(n: int, name: str) -> Any:
        def go() -> None:
            at_s[n] = clock.now_s

        return SimpleNamespace(job=SimpleNamespace(name=name), go=go)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start, "time", clock)
        all_of = [job(n, name) for n, (name, _) in enumerate(jobs)]
        start.open_gates(cast("Any", all_of), [rate for _, rate in jobs])
    return at_s


@given(SETS)
def test_no_two_copies_begin_together_and_all_do_soon(jobs: list[tuple[str, float | None]]) -> None:
    at_s = opened(jobs)
    for name in "ab":
        own = [moment for (job, _), moment in zip(jobs, at_s, strict=True) if job == name]
        assert len({*own}) == len(own)
        assert own[:1] in ([], [0.0])
    assert 0 <= max(at_s) < SETTLE_S


def test_copies_are_a_part_of_a_step_apart() -> None:
    assert opened([("a", 1.5), ("a", 1.5), ("b", None)]) == pytest.approx([0, 1 / 3, 0])


LIMITED, ALONE = Split((30.0, 70.0)), {"CUDA_VISIBLE_DEVICES": "GPU-1"}
LOW = Split((100.0, 100.0), "uncapped", below_normal=(0,))
AMD = Gpu(uuid="GPU-1", model="MI300X", vendor="amd", units_total=304, index=3)


@pytest.mark.parametrize(
    ("gpu", "split", "variables", "expected"),
    [
        (None, LIMITED, {}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"}),
        (None, LOW, {}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
            "CUDA_MPS_CLIENT_PRIORITY": "1"}),
        (GPU, LOW, {"CUDA_MPS_PIPE_DIRECTORY": "/pipes"}, {
            **ALONE, "CUDA_MPS_PIPE_DIRECTORY": "/pipes",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "CUDA_MPS_CLIENT_PRIORITY": "1",
        }),
        (None, TIME_SLICED, {}, {}),
        (GPU, TIME_SLICED, {}, {**ALONE, "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}),
        (GPU, LIMITED, {"CUDA_MPS_PIPE_DIRECTORY": "/pipes"}, {
            **ALONE, "CUDA_MPS_PIPE_DIRECTORY": "/pipes", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        }),
        (GPU, LIMITED, {"ADVISOR_RUNTIME_DIR": "/run/me"}, {
            **ALONE, "CUDA_MPS_PIPE_DIRECTORY": "/run/me/GPU-1/mps",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        }),
        (AMD, Split((10.0, 90.0)), {}, {
            "ROCR_VISIBLE_DEVICES": "3", "HSA_CU_MASK": "0:0-31",
            "ROC_GLOBAL_CU_MASK": "0xffffffff",
        }),
    ],
)  # fmt: skip
def test_what_limits_a_job_is_shown_before_it_starts(
    gpu: Gpu | None, split: Split, variables: dict[str, str], expected: dict[str, str]
) -> None:
    settings = read_settings({"HOME": "/home/me", **variables})
    jobs = (LaunchPart(job=Job(name=name, command=("true",))) for name in "ab")
    pair = LaunchSet(split=split, parts=tuple(jobs))
    assert start.limit_environment(pair, pair.shares(None)[0], gpu, settings) == expected


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_supervisor_is_told_secrets_by_a_pipe_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """What is in its environment stays to be read for as long as it lives."""
    secret = {"ADVISOR_DATABASE_URL": "postgresql://me:geheim@db/x"}
    settings = read_settings({"HOME": str(tmp_path), "KEPT": "1", **secret})
    folder = create_folder(tmp_path / "launches", LaunchSpec(launch_id="l", gpu="0", pairs=(PAIR,)))
    supervisor = MagicMock()
    supervisor.stdin.write.side_effect = BrokenPipeError if is_gone else None
    popen = Mock(return_value=supervisor)
    monkeypatch.setattr(start, "subprocess", Mock(Popen=popen))
    assert start.spawn_supervisor(folder, settings, "program") is supervisor
    (command,), options = popen.call_args
    assert command[1:] == ["-P", "-m", "program", str(folder.path)]
    assert (options["env"], options["start_new_session"]) == (
        {"HOME": str(tmp_path), "KEPT": "1"}, True
    )  # fmt: skip
    assert json.loads(supervisor.stdin.write.call_args.args[0]) == settings.secrets()
    assert (folder.path / start.LOG).exists()
    # Where the caller lives longer, nothing stays in the table of processes.
    assert processes.wait_until(lambda: supervisor.wait.called, 5)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("vllm", "serve", "m"), ("vllm",)),
        (("python", "-m", "vllm.entrypoints.openai.api_server"), ("vllm",)),
        (("/opt/conda/envs/vllm/bin/python", "jax_train.py"), ("jax",)),
        (("python3", "train.py"), ("jax", "tensorflow", "vllm", "sgl")),
    ],
)
def test_how_to_hold_less_memory_is_told_by_the_command(
    command: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """A folder of that name says nothing; a command that says nothing may run on any."""
    jobs = [Job(name=name, command=command, memory_mib=750) for name in "ab"]
    with pytest.raises(NoSplitError) as refused:
        start.check_memory(jobs, replace(GPU, memory_mib=1000))
    assert tuple(name for name, (way, *_) in HOLDERS.items() if way in refused.value.fix) == names
