"""Power against that of a reference which is measured again and again between the cases.

A card gets warmer and draws more; between two references its power is taken to move evenly. A
reference whose clock was held back draws less than its data let it, and everything beside it would
seem to draw more: it is none.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from advisor_power.inputs.case import InputCase, InputWork, ProductShape
from advisor_power.inputs.result import InputPower
from advisor_power.kernels.estimates import STANDARD_ERRORS_95, around, standard_error
from advisor_power.operands.presets import USUAL

_FEWEST = 3
"""References whose scatter says anything."""


def reference_for(shape: ProductShape, dtype: str, work: InputWork) -> InputCase:
    """Normal random numbers: what nearly everybody measures with."""
    operands = str(next(iter(USUAL.pairs(dtype).values())))
    return InputCase(operands=operands, shape=shape, dtype=dtype, work=work)


def with_ratios(results: Iterable[InputPower]) -> list[InputPower]:
    """Each result with its ratio to the references of its session around it, if there are any."""
    ordered = sorted(results, key=lambda r: (r.session, r.moment_s))
    found: list[InputPower] = []
    for _, group in groupby(ordered, key=lambda r: r.session):
        of_session = list(group)
        references = [r for r in of_session if r.is_reference and not r.held_back]
        found += [_with_ratio(result, references) for result in of_session]
    return sorted(found, key=lambda r: r.moment_s)


def _with_ratio(result: InputPower, references: Sequence[InputPower]) -> InputPower:
    same = [r for r in references if _kind(r) == _kind(result)]
    # A reference is compared with its neighbours: how far it is off 1 is the noise of ratios.
    others = [r for r in same if r.measured_at != result.measured_at]
    if not others:
        return result
    reference_w, error_w = _at(result.moment_s, others)
    ratio = result.power_w.value / reference_w
    of_windows = standard_error(result.power_w) / result.power_w.value, error_w / reference_w
    relative = math.hypot(*of_windows, _scatter(same))
    return replace(result, reference_ratio=around(ratio, STANDARD_ERRORS_95 * ratio * relative))


def _scatter(references: Sequence[InputPower]) -> float:
    """How far a reference is off what its neighbours let expect, root mean square, as a part.

    A window is read to a thousandth, but a card that was cool a moment ago draws less.
    """
    if len(references) < _FEWEST:
        return 0.0
    off = (
        one.power_w.value / _at(one.moment_s, [r for r in references if r is not one])[0] - 1
        for one in references
    )
    return math.sqrt(statistics.fmean(x * x for x in off))


def _kind(result: InputPower) -> tuple[object, ...]:
    case = result.case
    return result.conditions, case.shape, case.dtype, case.work


def _at(moment_s: float, references: Sequence[InputPower]) -> tuple[float, float]:
    """Power of the reference at a moment, and its standard error."""
    before = [r for r in references if r.moment_s <= moment_s][-1:]
    after = [r for r in references if r.moment_s > moment_s][:1]
    if not (before and after):
        (only,) = before or after
        return only.power_w.value, standard_error(only.power_w)
    first, last = before[0], after[0]
    part = (moment_s - first.moment_s) / (last.moment_s - first.moment_s)
    watts = (1 - part) * first.power_w.value + part * last.power_w.value
    errors = (1 - part) * standard_error(first.power_w), part * standard_error(last.power_w)
    return watts, math.hypot(*errors)
