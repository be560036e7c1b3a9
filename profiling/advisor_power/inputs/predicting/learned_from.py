"""Which results a model of power by data learns from, as points."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from advisor.wire.power import InputPoint
from advisor_power.inputs.keeping import kept_inputs
from advisor_power.inputs.reference import with_ratios
from advisor_power.inputs.result import InputPower
from advisor_power.operands.fingerprint import features_of
from advisor_power.operands.from_file import FILE
from advisor_power.operands.grammar import Call, Operand, OperandPair

_BAD = ("wrong-outputs", "not-settled")
"""Flags of results whose power is not that of the product."""


def kept_points(home: Path) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """What `advisor power input` measured on cards of this host; what is not used, by reason.

    Raises:
        StoreError: a file cannot be read.
    """
    return points_of(kept_inputs(home))


def points_of(results: Iterable[InputPower]) -> tuple[tuple[InputPoint, ...], dict[str, int]]:
    """Results as points, and how many were left out, by reason."""
    found: list[InputPoint] = []
    left_out: Counter[str] = Counter()
    for result in with_ratios(results):
        if why := _fault(result):
            left_out[why] += 1
        else:
            found.append(_point(result))
    return tuple(_with_clocks(found)), dict(left_out)


def pattern_of(pair: OperandPair) -> str:
    """The pattern that operands follow: their words, without numbers.

    All levels of a sweep have one; so have sweeps that differ in numbers alone, such as the mean
    and the spread of normal random numbers.
    """
    a, b = _pattern(pair.a), _pattern(pair.b)
    both = a if a == b else f"a={a}; b={b}"
    return both if pair.aligned else f"{both}; align=false"


def _fault(result: InputPower) -> str | None:
    reasons = {
        f"computed a {result.case.work}, not a product": result.case.work != "product",
        "has no fingerprint": result.fingerprint is None,
        "has no idle power": result.idle_w is None,
        "has no clock": result.sm_clock_mhz is None,
        "does not say on how many SMs": result.conditions.units is None,
        "draws no more than the idle card": result.power_w.value <= (result.idle_w or 0.0),
        **{f"has the flag {flag}": flag in result.flags for flag in _BAD},
    }
    return next((why for why, is_so in reasons.items() if is_so), None)


def _point(result: InputPower) -> InputPoint:
    case, where = result.case, result.conditions
    fingerprint, idle_w, clock_mhz = result.fingerprint, result.idle_w, result.sm_clock_mhz
    # `_fault` has looked at them.
    assert fingerprint is not None
    assert idle_w is not None
    assert clock_mhz is not None
    assert where.units is not None
    ratio = result.reference_ratio
    return InputPoint(
        gpu_model=where.gpu_model,
        gpu_uuid=where.gpu_uuid,
        driver=where.driver,
        torch=where.torch,
        measured_at=result.measured_at,
        dtype=case.dtype,
        shape=case.shape,
        units=where.units,
        expression=case.operands,
        group=pattern_of(case.pair),
        real=FILE in (case.pair.a.source.name, case.pair.b.source.name),
        is_reference=result.is_reference,
        features=features_of(fingerprint),
        power_w=result.power_w.value,
        idle_w=idle_w,
        flop_per_s=result.rate.value * case.launch_work,
        clock_mhz=clock_mhz,
        reference_w=None if ratio is None else result.power_w.value / ratio.value,
        power_limit_w=result.power_limit_w,
        at_limit=result.at_limit,
        throttled=result.throttled,
    )


def _with_clocks(points: Sequence[InputPoint]) -> Iterator[InputPoint]:
    """Points whose clock was held back with the clock that their rate tells.

    A product takes as many cycles at any clock. So others of the same kind, whose clock stood
    still, tell it better than few readings of one that went up and down.
    """
    per_cycle: dict[tuple[object, ...], list[float]] = {}
    for p in points:
        if not p.held_back:
            per_cycle.setdefault(_kind(p), []).append(p.flop_per_s / p.clock_mhz)
    for p in points:
        known = per_cycle.get(_kind(p), ())
        told = bool(known) and p.held_back
        yield replace(p, clock_mhz=p.flop_per_s / median(known)) if told else p


def _kind(p: InputPoint) -> tuple[object, ...]:
    return p.gpu_uuid, p.dtype, p.shape, p.units


def _pattern(operand: Operand) -> str:
    words = [operand.source, *(call for call in operand.operations if call.name != "cast")]
    return "|".join(map(_words, words))


def _words(call: Call) -> str:
    if call.name == FILE:
        return f"{FILE}({call.arguments[0]})"
    chosen: Sequence[str] = [value for value in call.values if isinstance(value, str)]
    return f"{call.name}({','.join(chosen)})" if chosen else call.name
