"""Ray: a task for each shard; a lost node's task is run again by Ray itself."""

import importlib
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.errors import InputError
from advisor_profiling.fanout.shards import Shard, run_shard

_RETRIES = 3
"""Ray's own default: how often a shard is started again after its node or worker was lost."""

_STOP_S = 60.0
_CONNECT_S = 10.0


class RayEngine:
    """The cluster is the one that RAY_ADDRESS names, or the one that runs on this host.

    Ray ends the tasks of a command that has ended, so that none is left of an earlier one.

    Args:
        secrets: Variables that shards need and no log may show.

    Raises:
        InputError: there is no such cluster, or Ray cannot be loaded.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._ray = _connected()
        self._tasks: dict[Any, str] = {}

    def submit(self, shards: Sequence[Shard]) -> None:
        """One task for each, with a GPU of its own."""
        for shard in shards:
            task = self._ray.remote(_run).options(
                num_cpus=1, num_gpus=1, max_retries=_RETRIES, name=shard.name
            )
            self._tasks[task.remote(shard, self._secrets)] = shard.name

    def ended(self) -> Mapping[str, str]:
        """Tasks that Ray will not start again, with the last line of what they raised."""
        return {self._tasks[task]: self._error(task) for task in self._ready(0)}

    def stop(self) -> None:
        """Interrupt all tasks, and wait a minute at most while they end their jobs."""
        for task in self._tasks:
            self._ray.cancel(task)
        # Each shard first ends its jobs and its MPS daemon.
        self._ready(_STOP_S)

    def _ready(self, timeout_s: float) -> list[Any]:
        if not (tasks := list(self._tasks)):
            return []
        return self._ray.wait(tasks, num_returns=len(tasks), timeout=timeout_s)[0]

    def _error(self, task: Any) -> str:
        try:
            self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            return str(error).strip().splitlines()[-1]
        return ""


def _run(shard: Shard, secrets: Mapping[str, str]) -> None:
    # Ray sets it to the CPUs of the task; a measured job would be another one.
    kept = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
    run_shard(shard, {**kept, **secrets})


def _connected() -> Any:
    """Ray, connected to its cluster."""
    address = os.environ.get("RAY_ADDRESS", "")
    try:
        _check_address(address)
        ray: Any = importlib.import_module("ray")
        ray.init(
            address="auto", log_to_driver=False, logging_level=logging.ERROR,
            ignore_reinit_error=True,
        )  # fmt: skip
    except OSError as error:  # Ray's ConnectionError is one, too
        raise InputError(
            "there is no Ray cluster here",
            why=f"RAY_ADDRESS is {address!r}: {str(error).splitlines()[0]}",
            fix="set RAY_ADDRESS=HOST:6379, or start one: ray start --head",
        ) from error
    except KeyError as error:
        raise InputError(
            f"ray cannot be loaded: {error}",
            why="it loads the package amdsmi, which does not find its library libamd_smi.so",
            fix="pip uninstall amdsmi, or install amd-smi-lib",
        ) from error
    return ray


def _check_address(address: str) -> None:
    """Ray itself asks for minutes where nobody listens."""
    host, _, port = address.rpartition(":")
    if "://" not in address and port.isdecimal():
        socket.create_connection((host, int(port)), _CONNECT_S).close()
