"""Runs a launch from its first set to the end of its last; whatever happens has a defined end."""

import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager

from advisor.errors import AdvisorError
from advisor.formats.moments import now
from advisor.launch.monitor.energy import LaunchMeter
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.spec import LaunchSpec
from advisor.launch.records.status import LaunchStatus, State
from advisor.launch.records.status_writer import StatusWriter
from advisor.launch.start.starting import check_memory
from advisor.launch.supervisor.set_run import Ending, LaunchContext, SetRun
from advisor.runtime.host.beats import heard_by

OpenContext = Callable[[], AbstractContextManager[LaunchContext]]


def run_launch(
    folder: LaunchFolder,
    spec: LaunchSpec,
    open_context: OpenContext,
    stop_asked: Callable[[], bool],
) -> LaunchStatus:
    """Run all sets, one after the other, and write where they stand.

    Args:
        folder: Claimed by the caller.
        spec: What is wanted.
        open_context: Gets hold of the GPU; raises where it cannot be had.
        stop_asked: Whether the caller was asked to stop; the folder's own request counts as well.

    Returns:
        The last status; no job runs any more.
    """
    writer = StatusWriter(folder, spec)
    writer.enter("starting", started_at=now())
    state: State = "failed"
    try:
        with heard_by(writer.update), open_context() as context:
            gpu = context.gpu
            writer.update(
                gpu_uuid=gpu.uuid,
                gpu_model=gpu.model,
                units_total=gpu.units_total,
                power_limit_w=gpu.power_limit_w,
            )
            for pair in spec.pairs:
                check_memory(pair, gpu)
            meter = LaunchMeter(context.source, time.monotonic)
            with heard_by(meter.look):
                state = _run_sets(folder, spec, context, writer, meter, stop_asked)
    except AdvisorError as error:
        writer.blame(error.code, str(error))
    except OSError as error:
        # Disk full, no permission: the system's own words.
        writer.blame("system", str(error))
    except Exception as error:  # noqa: BLE001 - what is not written down here is never known
        traceback.print_exc(file=sys.stderr)
        writer.blame("internal", f"{type(error).__name__}: {error}")
    writer.close("failed" if writer.status.code else state)
    return writer.status


def _run_sets(
    folder: LaunchFolder,
    spec: LaunchSpec,
    context: LaunchContext,
    writer: StatusWriter,
    meter: LaunchMeter,
    stop_asked: Callable[[], bool],
) -> State:
    endings: list[Ending] = []
    for number in range(len(spec.pairs)):
        folder.keep_reserve()
        writer.begin_pair(number)
        run = SetRun(folder, spec, number, context, writer, meter, stop_asked)
        try:
            endings.append(run.run())
        finally:
            # With the end of the jobs, and of what held their limits.
            writer.update(whole_energy_j=meter.read(), starts_energy_j=meter.starts_j)
        if endings[-1] is Ending.ASKED:
            break
    if any(ending is Ending.FAILED for ending in endings):
        return "failed"
    return "finished" if all(ending is Ending.FINISHED for ending in endings) else "stopped"
