"""Shares through MPS v3 where the driver has it: the server holds what each job has.

A job chooses its namespace by the folder of its socket, and cannot raise what the namespace has by
the variables of its environment. NVIDIA's documentation says that the percentage overrides them
("Appendix: Environment Variables"); on driver 615 others saw that a lower one still counts
(kai-scheduler/kai-gpu-fractioning, `mpsns`). Memory has one way out: a bound for a GPU that a
process cannot see lifts all of its bounds. Tried here against fakes only.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE, WHOLE, Gpu, Share
from advisor.errors import LimitNotProvenError, PartitionError
from advisor.runtime.backends.backend import ComputingPids, Granted, check_environments
from advisor.runtime.backends.mps import (
    PIPE_DIRECTORY,
    MpsBackend,
    end_daemon,
    open_mps,
    open_own_daemon,
    own_pipe_dir,
    start_server,
)
from advisor.runtime.backends.mps3_control import PIPES, SERVER, Control3, speaks_v3
from advisor.runtime.backends.mps_control import Control
from advisor.runtime.host.processes import environment_of

_OTHER = re.compile(r"[^a-z0-9_]")
_LENGTH = 32
"""Of a name, from its end; a namespace may have 64."""

_PATH_BYTES = 107
"""Of a socket (man 7 unix); with a longer one the daemon makes none, and says nothing."""


@dataclass(frozen=True, slots=True)
class Mps3Backend(MpsBackend):
    """MPS v3 on one GPU.

    Attributes:
        namespace: Of one job; None: of no job yet.
    """

    control: Control3
    namespace: str | None = None

    def for_job(self, place: str, share: Share) -> Self:
        """The same in a namespace of its own."""
        name = namespace_of(place)
        self.control.create(name, share)
        return replace(self, namespace=name)

    def end_job(self) -> None:
        """Remove the namespace."""
        if self.namespace is not None:
            self.control.delete(self.namespace)

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that make a process a client of the namespace; its share for who reads it."""
        folder = self.control.pipe_dir / SERVER / (self.namespace or "default")
        return MpsBackend.environment(self, share) | {PIPE_DIRECTORY: str(folder)}

    def cap(self, percent: int) -> None:
        """Nothing is left to set: each namespace holds its own share."""

    def given_percent(self) -> None:
        """The server gives nobody more than his namespace does, which is looked at for each job."""

    def holds(self, percent: float) -> bool:
        """The namespace holds the share."""
        if self.namespace is None:
            return percent >= 100
        return not self.control.differs(self.namespace, Share(percent))

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read back what a process gets that asks for all of the GPU and of its memory."""
        tries = {PERCENTAGE: "100"}
        if share.memory_mib is not None:
            tries[MEMORY_LIMIT] = f"0={self.gpu.memory_mib or 2 * share.memory_mib}M"
        return MpsBackend.prove(self, share, {**environment, **tries})

    def check_variables(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check the job's namespace, that all of it is in there, and what could lead out of it."""
        assert self.namespace is not None
        check_environments(share, self.environment(share), pids, held={PERCENTAGE})
        if less := sorted(pid for pid in pids() if _has_less(pid, share)):
            raise LimitNotProvenError(
                f"processes {less} of the job have less than its share of {share} %",
                why=f"a script inside the job lowers {PERCENTAGE}",
                fix="leave the variable alone, or launch with another split",
            )
        where = self.control.namespaces()
        if out := sorted(pid for pid in pids() if where.get(pid, self.namespace) != self.namespace):
            raise LimitNotProvenError(
                f"processes {out} of the job are clients of the MPS namespace {where[out[0]]}",
                why=f"they set {PIPE_DIRECTORY} themselves; that of the job is {self.namespace}",
                fix="leave the variable alone",
            )
        if wrong := self.control.differs(self.namespace, share):
            raise LimitNotProvenError(
                wrong,
                why="somebody of this user has changed it through the MPS control program",
                fix="leave the MPS daemon of advisor alone",
            )


def namespace_of(place: str) -> str:
    """The name of a job's namespace: that of its place, in the letters that it may have."""
    return _OTHER.sub("_", place.lower())[-_LENGTH:]


def open_newest(
    gpu: Gpu,
    runtime_dir: Path,
    environment: Mapping[str, str],
    pipe_dir: Path | None = None,
    computing: ComputingPids = tuple,
) -> MpsBackend:
    """MPS v3 on `gpu` where the driver has it and it starts, else as `open_mps` says.

    Raises:
        PartitionError: as `open_mps`; or a daemon that speaks v3 did not start well, nor end.
    """
    if pipe_dir is not None or not speaks_v3(environment):
        return open_mps(gpu, runtime_dir, environment, pipe_dir, computing)
    pipes = own_pipe_dir(gpu, runtime_dir, PIPES)
    control = Control3(pipes, environment, gpu_uuid=gpu.uuid)
    opened = Mps3Backend(gpu, control, owned=True, computing=computing)
    try:
        _check_length(pipes)
        open_own_daemon(gpu, runtime_dir, opened.control)
        start_server(opened.control)
    except PartitionError as error:
        # Two daemons on one GPU would know nothing of each other.
        end_daemon(opened)
        second = open_mps(gpu, runtime_dir, environment, None, computing)
        why = f"MPS v3 did not start, so limits are variables of the jobs: {error}"
        return replace(second, second_best=why)
    return opened


def unopened(
    gpu: Gpu,
    runtime_dir: Path,
    environment: Mapping[str, str],
    pipe_dir: Path | None,
    place: str,
) -> MpsBackend:
    """What `open_newest` would open for one job, before anything is started."""
    if pipe_dir is None and speaks_v3(environment):
        control = Control3(own_pipe_dir(gpu, runtime_dir, PIPES), environment)
        return Mps3Backend(gpu, control, owned=False, namespace=namespace_of(place))
    return MpsBackend(gpu, Control(pipe_dir or own_pipe_dir(gpu, runtime_dir), {}), owned=False)


def _has_less(pid: int, share: Share) -> bool:
    try:
        return 0 < float(environment_of(pid).get(PERCENTAGE, WHOLE)) < share.percent
    except ValueError:
        # The driver takes it as no limit.
        return False


def _check_length(pipes: Path) -> None:
    longest = len(os.fsencode(pipes / SERVER / ("n" * _LENGTH) / "control"))
    if longest > _PATH_BYTES:
        raise PartitionError(
            f"sockets in {pipes} would have paths of {longest} characters",
            why=f"a socket may have {_PATH_BYTES}",
            fix="set ADVISOR_RUNTIME_DIR to a shorter folder",
        )
