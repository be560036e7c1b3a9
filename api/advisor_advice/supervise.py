"""The process behind one launch: `python -P -m advisor_advice.supervise FOLDER`.

`advisor launch` and the service start it; people do not. Its secrets come as JSON through its
standard input (advisor/launch/set_monitor.py).
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from advisor.core.records import Record
from advisor.errors import AdvisorError, BusyError
from advisor.files import gpu_lock
from advisor.launch.folder import LaunchFolder
from advisor.launch.spec import LaunchSpec
from advisor.launch.supervise import LaunchContext, run_launch
from advisor.runtime.processes import beat
from advisor.settings import Settings, read_settings
from advisor_data import open_store
from advisor_profiling.telemetry.nvml import lowered, put_back
from advisor_profiling.testbed import backend_alone, find_gpus, open_source, with_units


def supervise(folder: Path) -> None:
    """Run the launch of a folder to its end.

    Raises:
        BusyError: it has or had a supervisor.
        InputError: its spec cannot be read.
    """
    launch, settings = LaunchFolder(folder.absolute()), read_settings()
    with _stoppable() as stop_requested, launch.supervising():
        spec = launch.read_spec()
        run_launch(
            launch,
            spec,
            lambda: _open_context(
                spec, settings, lambda: stop_requested() or launch.stop_requested()
            ),
            stop_requested,
        )


@contextmanager
def _open_context(
    spec: LaunchSpec, settings: Settings, stop_requested: Callable[[], bool]
) -> Generator[LaunchContext]:
    """The GPU, its telemetry and its lock, for this process alone.

    Raises:
        BusyError: another process holds it for longer than the launch may wait.
    """
    gpu = find_gpus(spec.gpu)
    with ExitStack() as stack:
        until_s = time.monotonic() + spec.wait_s
        while True:
            try:
                with ExitStack() as taken:
                    for uuid in sorted(part.uuid for part in gpu.each):
                        taken.enter_context(gpu_lock(settings.lock_dir, uuid, spec.launch_id))
                    stack.push(taken.pop_all())
                break
            except BusyError:
                if time.monotonic() >= until_s or stop_requested():
                    raise
                beat()
                time.sleep(0.1)
        if sum(put_back(part.uuid, settings.runtime_dir) for part in gpu.each):
            gpu = find_gpus(spec.gpu)
        gpu = with_units(gpu, settings)
        if (lower_w := spec.power_limit_w) is not None:
            stack.enter_context(lowered(gpu, lower_w, settings.runtime_dir))
            gpu = replace(gpu, power_limit_w=lower_w)
        yield LaunchContext(
            gpu=gpu,
            source=stack.enter_context(closing(open_source(gpu, None, settings, summed=True))),
            environment=settings.job_environment(),
            open_backend=lambda sharing: backend_alone(
                gpu, "uncapped" if sharing == "time-sliced" else None, settings
            ),
            remember=lambda record: _remember(record, settings),
            renew=lambda pair, demands: _forecasting().renewed(pair, demands, gpu, settings),
            better=lambda pair, observations: _forecasting().better(
                pair, observations, gpu, settings
            ),
        )


def _remember(record: Record, settings: Settings) -> None:
    with open_store(settings.database_url, settings.home) as store:
        store.add([record])


def _forecasting() -> ModuleType:
    from advisor_advice import forecasting  # a launch needs no model before

    return forecasting


@contextmanager
def _stoppable() -> Generator[Callable[[], bool]]:
    """Signals that ask for an end are taken note of; what is under way is stopped in its order."""
    signals: list[int] = []

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: signals.append(number))
    yield lambda: bool(signals)


def _main() -> int:
    # Into the variables that the driver of a database reads; who looks from outside sees those
    # that the process was started with.
    os.environ.update(json.loads(sys.stdin.buffer.read() or b"{}"))
    try:
        supervise(Path(sys.argv[1]))
    except AdvisorError as error:
        print(f"advisor: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
