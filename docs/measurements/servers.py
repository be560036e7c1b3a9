"""Prints what splits do to servers and to the jobs beside them, of the bundled points.

    .venv/bin/python docs/measurements/servers.py

For each pair with a server: the split that saves most energy of those at which it serves all of its
demand, and no limits. Energy is for the same work, against a GPU for each job. A pair of
which a job was over 12 % faster than alone is left out: its reference was slow.
"""

from collections.abc import Iterator

from advisor.core.objectives import PartResult, SplitResult
from advisor.core.records import PairPoint, SoloPoint
from advisor.validity.points import FASTEST
from advisor_data.bundled import bundled_pair_points, bundled_reference_points, bundled_solo_points

HEADINGS = (
    "pair", "split, SMs", "server serves, %", "other job's speed, %", "p99, ms",
    "energy for the same work, against a GPU for each",
)  # fmt: skip
ALL = 0.975
"""Part of its demand that a server may miss by chance."""


def main() -> None:
    """A table for each GPU model."""
    whole = (p for p in (*bundled_reference_points(), *bundled_solo_points())
             if p.share_percent == 100)  # fmt: skip
    alone = {(p.run, p.gpu_uuid, p.job): p for p in whole}
    pairs: dict[tuple[str, ...], list[tuple[PairPoint, SplitResult]]] = {}
    for point in bundled_pair_points():
        ends = [alone.get((point.run, point.gpu_uuid, job)) for job in point.jobs]
        if any(part.offered_rate for part in point.parts) and all(ends):
            found = _result(point, *(end for end in ends if end))
            key = (point.gpu_model, *point.jobs, point.gpu_uuid)
            pairs.setdefault(key, []).append((point, found))
    for model in dict.fromkeys(key[0] for key in pairs):
        print(f"\n{model}\n\n| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}")
        for points in (found for key, found in pairs.items() if key[0] == model):
            if max(max(result.speeds) for _, result in points) > FASTEST:
                continue
            for number, (point, result) in enumerate(_shown(points)):
                print(_line(point, result, named=not number))


def _result(point: PairPoint, a: SoloPoint, b: SoloPoint) -> SplitResult:
    assert point.power_w
    assert a.power_w
    assert b.power_w
    first, second = point.parts
    assert first.rate
    assert second.rate
    parts = PartResult(first.rate, a.rate, a.power_w), PartResult(second.rate, b.rate, b.power_w)
    return SplitResult(parts, point.power_w)


def _shown(
    points: list[tuple[PairPoint, SplitResult]],
) -> Iterator[tuple[PairPoint, SplitResult]]:
    limited = [(p, r) for p, r in points if p.mode == "mps"]
    serving = [(p, r) for p, r in limited if _server(p, r)[0] >= ALL]
    best = max(serving, key=lambda found: found[1].energy_saved, default=None)
    if best:
        yield best
    yield from ((p, r) for p, r in points if p.mode == "uncapped")


def _server(point: PairPoint, result: SplitResult) -> tuple[float, float, float | None]:
    """Part of the demand served, the other job's speed, and the p99 latency."""
    first, second = point.parts
    if first.offered_rate:
        return result.speeds[0], result.speeds[1], first.latency_p99_ms
    return result.speeds[1], result.speeds[0], second.latency_p99_ms


def _line(point: PairPoint, result: SplitResult, *, named: bool) -> str:
    served, other, p99_ms = _server(point, result)
    limited = point.mode == "mps"
    saved = result.energy_saved
    cells = (
        " + ".join(point.jobs) if named else "",
        " + ".join(str(part.units) for part in point.parts) if limited else "no limits",
        f"{100 * served:.0f}",
        f"{100 * other:.0f}",
        "-" if p99_ms is None else f"{p99_ms:.0f}",
        f"{100 * abs(saved):.1f} % {'less' if saved >= 0 else 'more'}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
