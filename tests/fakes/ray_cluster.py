"""A real Ray cluster on loopback, a fake GPU for each of two nodes; nothing of it is left."""

import secrets
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

FAKES = Path(__file__).parent
_NAMESPACE = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A running cluster; `environment` is that of one who uses it."""

    environment: Mapping[str, str]
    process: subprocess.Popen[str]

    def lose_first_gpu(self) -> None:
        """The node with GPU 0 is gone, as after a power cut."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == "killed"


@contextmanager
def ray_cluster(environment: Mapping[str, str]) -> Generator[RayCluster]:
    """A running cluster, and an environment for those who use it; skips where none can be run."""
    if find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    if subprocess.run([*_NAMESPACE, "true"], check=False).returncode:
        pytest.skip("needs a process namespace, so that nothing is left running")
    variables = {
        **environment,
        "PYTHONPATH": str(FAKES / "without_amdsmi"),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with subprocess.Popen(
        [*_NAMESPACE, sys.executable, FAKES / "ray_nodes.py"],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "the cluster did not start"
            yield RayCluster({**variables, "RAY_ADDRESS": address}, process)
        finally:
            # With `unshare` its namespace ends, and all that runs in it.
            process.kill()
