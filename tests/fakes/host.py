"""A host with one fake GPU: a control program, a libcuda and (where wanted) an NVML that answer.

The programs are found as the real ones are: by PATH and by LD_LIBRARY_PATH.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import Forked, run_forked, start_forked
from reading import answer_of
from waiting import PATIENCE_S

FAKES = Path(__file__).parent
UUID = "GPU-00000000-0000-0000-0000-000000000000"
OTHER_UUID = "GPU-00000000-0000-0000-0000-000000000001"


@dataclass(frozen=True, slots=True)
class FakeHost:
    """Folders and environment of a host; `folder` is short, since socket paths are."""

    folder: Path
    libraries: Path

    def environment(self, **more: str) -> dict[str, str]:
        """Variables under which a process meets the fakes instead of a GPU."""
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "ADVISOR_"))},
            "PATH": os.pathsep.join(
                [str(FAKES / "mps"), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "LD_LIBRARY_PATH": str(self.libraries),
            "FAKE_NVML_DIR": str(self.folder / "nvml"),
            "FAKE_CUDA_UUIDS": UUID,
            "ADVISOR_HOME": str(self.folder / "home"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "ADVISOR_RUNTIME_DIR": str(self.folder / "run"),
            "ADVISOR_LOCK_DIR": str(self.folder / "locks"),
            "ADVISOR_JOBS": str(self.folder / "jobs"),
            "COLUMNS": "200",
            **more,
        }

    @property
    def pipe_dir(self) -> Path:
        """Pipe directory of the daemon that advisor starts for the GPU."""
        return self.folder / "run" / UUID[-12:] / "mps"

    def control(self, command: str, pipe_dir: Path | None = None) -> str:
        """Ask the fake daemon, as a person would."""
        return subprocess.run(
            ["nvidia-cuda-mps-control"],
            env=self.environment(CUDA_MPS_PIPE_DIRECTORY=str(pipe_dir or self.pipe_dir)),
            input=command + "\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        ).stdout.strip()

    def write_job(self, name: str, *behaviour: str, gate: bool = True, **fields: object) -> Path:
        """A job file for the fake job (JSON is YAML); `behaviour` are its options."""
        lines = {
            "command": [sys.executable, str(FAKES / "fake_job.py"), *behaviour],
            "progress": {"kind": "counter", "unit": "steps", "gate": gate},
            "memory_mib": 100,
            **fields,
        }
        path = self.folder / "jobs" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(lines))
        return path

    def advisor(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end, forked from a process that has imported it."""
        return run_forked(arguments, self.environment(**more))

    def answer(self, *arguments: str, **more: str) -> Any:
        """What a command that ends well answers as JSON."""
        done = self.advisor(*arguments, "--json", **more)
        assert done.returncode == 0, done.stderr
        return answer_of(done.stdout)

    def start_advisor(self, *arguments: str, **more: str) -> Forked:
        return start_forked(arguments, self.environment(**more))


def build_cuda(folder: Path) -> None:
    """Compile the fake libcuda into `folder`."""
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o",
         str(folder / "libcuda.so.1"), str(FAKES / "cuda" / "fake_cuda.c")],
        check=True,
    )  # fmt: skip
