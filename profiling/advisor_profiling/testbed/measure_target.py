"""One window with the processes of one target."""

import os
from collections.abc import Sequence

from advisor.errors import JobError
from advisor.runtime.processes import cpu_steal_s
from advisor_profiling.testbed.testbed import Testbed, WarmProcess
from advisor_profiling.window.points import JobResult, WindowResult
from advisor_profiling.window.rules import WindowRules
from advisor_profiling.window.targets import Target
from advisor_profiling.window.window import MeasuredWindow, WindowInputs, measure


def measure_target(
    target: Target, processes: Sequence[WarmProcess], testbed: Testbed, rules: WindowRules
) -> WindowResult:
    """Let the processes run together and measure; they run on afterwards.

    Raises:
        JobError: one of them ended before the window did, or made fewer than two steps.
        LimitBrokenError: something computed that was not under its limit.
    """
    for slot, process in enumerate(processes):
        process.go(slot)
    testbed.check_limits()
    begun_s, steal_s = testbed.clock.now_s(), cpu_steal_s()
    cpu_s = [process.cpu_s() for process in processes]
    window = measure(_watch(processes, testbed), rules)
    # One that ended in the last moments would leave its partner's time alone in the window.
    for process in processes:
        process.check()
    time_s = testbed.clock.now_s() - begun_s
    testbed.check_limits()
    parts = [
        _part(target, slot, process, window, _percent(process.cpu_s(), cpu_s[slot], time_s))
        for slot, process in enumerate(processes)
    ]
    cores = os.cpu_count() or 1
    return WindowResult(
        target=target,
        parts=tuple(parts),
        window=window,
        cpu_steal_percent=max(0.0, 100 * (cpu_steal_s() - steal_s) / (time_s * cores)),
    )


def _watch(processes: Sequence[WarmProcess], testbed: Testbed) -> WindowInputs:
    def check() -> None:
        for process in processes:
            process.check()

    return WindowInputs(
        counts=[process.count for process in processes],
        source=testbed.source,
        clock=testbed.clock,
        latencies=[process.latencies for process in processes],
        check=check,
    )


def _part(
    target: Target,
    slot: int,
    process: WarmProcess,
    window: MeasuredWindow,
    cpu_percent: float | None,
) -> JobResult:
    if (rate := window.rates[slot]) is None:
        raise JobError(
            f"{target.specs[slot]} made fewer than two steps in its window of "
            f"{window.window_s:.0f} s",
            why="it is too slow, or starved by the job next to it" if len(window.rates) > 1 else "",
            fix="give it more time with --window",
        )
    return JobResult(
        granted=process.granted,
        rate=rate,
        latency=window.latencies[slot],
        memory_used_mib=process.memory_mib(),
        cpu_percent=cpu_percent,
        reported=process.reported(),
    )


def _percent(after_s: float | None, before_s: float | None, time_s: float) -> float | None:
    if after_s is None or before_s is None:
        return None
    return max(0.0, 100 * (after_s - before_s) / time_s)
