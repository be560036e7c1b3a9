"""The MPS daemon of one GPU of the node: started, watched, started again, ended.

It fails closed: a GPU whose daemon is not known to be well is not ready, and says why, since a
client that finds no daemon runs on the whole GPU without a word.
"""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import WHOLE, Gpu, Share
from advisor.errors import AdvisorError, PartitionError
from advisor.runtime.backend import ComputingPids, Sight
from advisor.runtime.mps import Control, MpsBackend, start_server
from advisor.runtime.processes import owner_of, wait_until
from advisor_node.metering.proof import granted_units

_START_S = 10
_OPEN, _PRIVATE = 0o755, 0o700


@dataclass(frozen=True, slots=True)
class DaemonState:
    """Whether pods may start on a GPU; `why` not, else empty."""

    ready: bool
    why: str = ""


_NOT_YET = DaemonState(False, "its MPS daemon is being started")


class GpuDaemon:
    """One GPU and its daemon.

    Args:
        gpu: Its `units_total` must be known.
        folder: Of all daemons of the node; pods mount `<gpu uuid>/pipe` in it, and `<gpu uuid>/log`
            is the agent's alone.
        environment: Base environment of the daemon and of probes, without limits.
        computing: Lists the processes with a context on the GPU.

    Attributes:
        readiness: As of the last look.
        losses: How often a daemon that had run was gone.
    """

    def __init__(
        self, gpu: Gpu, folder: Path, environment: Mapping[str, str], computing: ComputingPids
    ) -> None:
        self._folder, self._environment = folder / gpu.uuid, environment
        control = Control(self._folder / "pipe", environment)
        self.backend = MpsBackend(gpu, control, owned=True, computing=computing)
        self.readiness = _NOT_YET
        self.losses = 0
        self._begun = self._proven = False

    @property
    def gpu(self) -> Gpu:
        """The GPU."""
        return self.backend.gpu

    @property
    def pipe_dir(self) -> Path:
        """What its clients have as CUDA_MPS_PIPE_DIRECTORY."""
        return self.backend.control.pipe_dir

    def look(self) -> bool:
        """See whether the daemon is well, and start one where there is none.

        Returns:
            Whether a daemon that pods may have used was gone: they have to be told.
        """
        lost = False
        try:
            if self.gpu.mig:
                raise PartitionError(
                    "MIG is on",
                    why="shares are of a whole GPU",
                    fix="turn it off: nvidia-smi -mig 0",
                )
            if not self.backend.control.answers():
                lost, self._begun, self._proven = self._begun, False, False
                self.losses += lost
                self._start()
            self._begun = True
            self._check()
            self.readiness = DaemonState(True)
        except AdvisorError as error:
            self.readiness = DaemonState(False, str(error))
        return lost

    def sight(self, *, used: bool) -> Sight | None:
        """Who uses the GPU; None: daemon or driver do not say, and no other pod may start."""
        try:
            return self.backend.sight()
        except AdvisorError as error:
            self._refuse(str(error))
            return None

    def meet_strangers(self, pids: Sequence[int]) -> bool:
        """Let no pod start while somebody else computes there, whom a device plugin may send."""
        self._refuse(
            f"processes {pids} compute on it, which are of no pod that was sent there: "
            "a device plugin must not give out the same GPUs"
        )
        return False

    def _refuse(self, why: str) -> None:
        if self.readiness.ready:
            self.readiness = DaemonState(False, why)

    def close(self) -> None:
        """End the daemon, and with it the work of its clients."""
        self.readiness = DaemonState(False, "the agent of the node has ended")
        if self.backend.control.answers():
            self.backend.close()

    def _start(self) -> None:
        _make_folder(self._folder, _OPEN)
        _make_folder(self.pipe_dir, _OPEN)
        _make_folder(self._folder / "log", _PRIVATE)
        self.backend.control.start_daemon(self.gpu.uuid, self._folder / "log")
        if not wait_until(self.backend.control.answers, _START_S):
            raise PartitionError(
                f"the MPS daemon for {self.gpu.uuid} did not answer within {_START_S} s",
                fix=f"read {self._folder}/log/control.log",
            )
        # For this user; the first client of another one gets a server of its own in its place.
        start_server(self.backend.control)

    def _check(self) -> None:
        self.backend.control.check_default()
        if self.backend.spoiled():
            raise PartitionError(
                "the MPS server is in a fault",
                why="a client crashed on the GPU and took its neighbours with it",
                fix="delete the pods on this GPU; the server recovers when the last one has ended",
            )
        if not self._proven:
            self.prove(Share(WHOLE), self._active_user())
            self._proven = True

    def _active_user(self) -> int | None:
        """Whose clients the server serves now; those of others would wait until they have ended."""
        control = self.backend.control
        busy = [server for server in control.servers() if control.clients(server)]
        return owner_of(busy[0]) if busy else None

    def prove(self, share: Share, user: int | None = None) -> int | None:
        """The SMs that the driver gives to a process under `share`; see `proof.Probe`."""
        variables = {**self._environment, **self.backend.environment(share)}
        return granted_units(self.backend, share, variables, user)


def _make_folder(folder: Path, mode: int) -> None:
    """A folder below one of root's; others may enter, and nobody else may have made it."""
    folder.mkdir(parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != folder.parent.stat().st_uid:
        raise PartitionError(
            f"{folder} is not a folder of ours",
            why="something else was there first",
            fix="remove it from the node; the agent makes it again",
        )
    folder.chmod(mode)
