"""Why nothing of a plan can be measured, and what could be instead."""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.cli.measure.benches import bundled_points
from advisor.core.records import PairPoint
from advisor.core.wording import listed
from advisor.errors import InputError

_NAMED = 3
"""How many things of a long list a message names."""


def check_anything(answer: Mapping[str, Any], plan: str) -> None:
    """Nothing of the plan can be measured: a mistake in the plan, not a result.

    Args:
        answer: What a campaign answers as JSON.
        plan: Name of the plan.

    Raises:
        InputError: every window was skipped.
    """
    skipped = answer["skipped"]
    if answer["windows"] or not skipped:
        return
    why = "; ".join(f"{' + '.join(item['pair'])}: {item['reason']}" for item in skipped[:_NAMED])
    raise InputError(
        f"no window of the plan {plan} can be measured",
        why=why + (f"; and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""),
        fix=_recorded(answer, skipped[0]["pair"]) if answer["replay"] else "choose other splits",
    )


def _recorded(answer: Mapping[str, Any], pair: Sequence[str]) -> str:
    """What a replay could have shown, of that pair where it was recorded at all."""
    points = (point for point in bundled_points() if isinstance(point, PairPoint))
    known = [point for point in points if point.gpu_model == answer["gpu_model"]]
    if splits := {_split(point) for point in known if point.jobs == tuple(sorted(pair))}:
        return f"of {' + '.join(pair)} were recorded {listed(sorted(splits))}"
    pairs = sorted({"+".join(point.jobs) for point in known})
    return f"{len(pairs)} pairs were recorded, such as {listed(pairs[:_NAMED])}"


def _split(point: PairPoint) -> str:
    shares = "/".join(f"{share:g}" for share in point.shares_percent)
    return shares if point.mode == "mps" else point.mode
