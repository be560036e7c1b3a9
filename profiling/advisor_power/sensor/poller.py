"""The processes that poll a card's sensors, as the side sees them that started them."""

import select
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

from advisor.errors import SourceError
from advisor.settings import python
from advisor_profiling.telemetry import polling

Role: TypeAlias = Literal["power", "state", "bursts"]
"""What is polled, and how often: `polled`."""

_READY_S = 120.0
"""Python takes long to load from a cold or shared disk."""

_COMPLAINT_S = 2.0


class Poller:
    """A process that appends what it polls to a file that is there, until it is closed."""

    def __init__(
        self, gpu_uuid: str, file: Path, role: Role, environment: Mapping[str, str]
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed with the process
        # A session of its own: Ctrl-C is for advisor, which ends it in order.
        self._process = subprocess.Popen(
            [python(), "-m", "advisor_power.sensor.polled", gpu_uuid, str(file), role],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def wait_ready(self) -> None:
        """Return when it polls.

        Raises:
            SourceError: it ends before, or takes too long.
        """
        assert self._process.stdout is not None
        said, _, _ = select.select([self._process.stdout], [], [], _READY_S)
        if not said or self._process.stdout.readline() != b"ready\n":
            raise self.failed()

    def check(self) -> None:
        """Check that it still polls.

        Raises:
            SourceError: it ended.
        """
        if self.gone:
            raise self.failed()

    def failed(self) -> SourceError:
        """What to say where it does not poll any more: its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_COMPLAINT_S)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return SourceError(
            f"the sensors cannot be recorded: {last or 'nothing says why'}",
            why="the process that polls them ended",
            fix="look at `nvidia-smi` and `dmesg`, then try again",
        )

    def close(self) -> None:
        """End it."""
        polling.end(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


@contextmanager
def recorders(
    gpu_uuid: str, file: Path, environment: Mapping[str, str]
) -> Generator[tuple[Poller, ...]]:
    """Two processes that record power and state of a card into a file.

    Raises:
        SourceError: one does not start.
    """
    with (
        closing(Poller(gpu_uuid, file, "power", environment)) as power,
        closing(Poller(gpu_uuid, file, "state", environment)) as state,
    ):
        for poller in (power, state):
            poller.wait_ready()
        yield power, state
