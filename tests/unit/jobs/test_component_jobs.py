"""The jobs that keep one part of a GPU busy: their files, and that their kernels compile."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from advisor.formats.job_file import sound_jobs

ROOT = Path(__file__).parents[3]
WORKLOADS = ROOT / "profiling/workloads"
JOBS = sound_jobs(ROOT / "jobs/components")[0]
SCRIPT = (WORKLOADS / "component_bench.py").read_text("utf-8")


def test_every_kernel_has_a_job_of_its_own() -> None:
    loads = re.findall(r'^    "([\w-]+)": harness\.Load', SCRIPT, re.MULTILINE)
    assert sorted(f"component-{name}" for name in loads) == sorted(job.name for job in JOBS)
    for job in JOBS:
        assert job.command[:2] == ("python3", "component_bench.py")
        assert job.name == f"component-{job.command[2]}"
        assert job.workdir is not None
        assert job.workdir.resolve() == WORKLOADS


def test_every_function_that_is_asked_for_is_there() -> None:
    source = (WORKLOADS / "component_bench.cu").read_text("utf-8")
    declared = r"^extern .C. __global__ void(?: __launch_bounds__\(\d+\))?\s+(\w+)\("
    kernels = set(re.findall(declared, source, re.MULTILINE))
    asked = set(re.findall(r'get_function\("(\w+)"\)|_tensor\(\*sizes, "(\w+)"', SCRIPT))
    assert {name for pair in asked for name in pair if name} == kernels


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_kernels_compile(tmp_path: Path, arch: str) -> None:
    made = tmp_path / "made.cubin"
    command = ["nvcc", f"-arch={arch}", "-cubin", "-Werror", "all-warnings", "-o", str(made)]
    done = subprocess.run(
        [*command, str(WORKLOADS / "component_bench.cu")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (b"tensor_fp8" in made.read_bytes()) == (arch == "sm_90")
