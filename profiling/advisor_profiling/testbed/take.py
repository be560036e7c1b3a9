"""One window with the clients of one target."""

import os
from collections.abc import Sequence

from advisor.errors import JobError
from advisor.runtime.host.processes import cpu_steal_s
from advisor_profiling.testbed.bench import Bench, Client
from advisor_profiling.window.points import Part, Taken
from advisor_profiling.window.rules import WindowRules
from advisor_profiling.window.targets import Target
from advisor_profiling.window.window import Watch, Window, measure


def take(target: Target, clients: Sequence[Client], bench: Bench, rules: WindowRules) -> Taken:
    """Let the clients run together and measure; they run on afterwards.

    Raises:
        JobError: one of them ended before the window did, or made fewer than two steps.
        LimitBrokenError: something computed that was not under its limit.
    """
    for seat, client in enumerate(clients):
        client.go(seat)
    bench.check_limits()
    begun_s, steal_s = bench.clock.now_s(), cpu_steal_s()
    cpu_s = [client.cpu_s() for client in clients]
    window = measure(_watch(clients, bench), rules)
    # One that ended in the last moments would leave its partner's time alone in the window.
    for client in clients:
        client.check()
    time_s = bench.clock.now_s() - begun_s
    bench.check_limits()
    parts = [
        _part(target, seat, client, window, _percent(client.cpu_s(), cpu_s[seat], time_s))
        for seat, client in enumerate(clients)
    ]
    cores = os.cpu_count() or 1
    return Taken(
        target=target,
        parts=tuple(parts),
        window=window,
        cpu_steal_percent=max(0.0, 100 * (cpu_steal_s() - steal_s) / (time_s * cores)),
    )


def _watch(clients: Sequence[Client], bench: Bench) -> Watch:
    def check() -> None:
        for client in clients:
            client.check()

    return Watch(
        counts=[client.count for client in clients],
        source=bench.source,
        clock=bench.clock,
        latencies=[client.latencies for client in clients],
        check=check,
    )


def _part(
    target: Target, seat: int, client: Client, window: Window, cpu_percent: float | None
) -> Part:
    if (rate := window.rates[seat]) is None:
        raise JobError(
            f"{target.runners[seat]} made fewer than two steps in its window of "
            f"{window.window_s:.0f} s",
            why="it is too slow, or starved by the job beside it" if len(window.rates) > 1 else "",
            fix="give it more time with --window",
        )
    return Part(
        granted=client.granted,
        rate=rate,
        latency=window.latencies[seat],
        memory_used_mib=client.memory_mib(),
        cpu_percent=cpu_percent,
        reported=client.reported(),
    )


def _percent(after_s: float | None, before_s: float | None, time_s: float) -> float | None:
    if after_s is None or before_s is None:
        return None
    return max(0.0, 100 * (after_s - before_s) / time_s)
