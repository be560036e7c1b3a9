"""Profiles of jobs that were measured on the whole GPU alone: estimated from that."""

from collections.abc import Iterable
from dataclasses import replace

from advisor.core.gpu import WHOLE
from advisor.core.records import DOUBTFUL, SoloPoint
from advisor.predict.one_window import window_of_point
from advisor.predict.profiles import Profile, computes_in_bursts, serving_of
from advisor.validity.points import is_usable
from advisor_models.one_window import bundled_one_window


def estimated_profiles(points: Iterable[SoloPoint]) -> dict[str, Profile]:
    """Of one job by GPU model, from its newest window on the whole GPU that nothing speaks against.

    Raises:
        ModelError: the head that estimates is damaged.
    """
    found: dict[str, Profile] = {}
    for point in sorted(filter(_is_sure, points), key=lambda p: p.started_at):
        if window := window_of_point(point):
            found[point.gpu_model] = _in_its_unit(bundled_one_window().profile(window), point)
    return found


def _is_sure(point: SoloPoint) -> bool:
    return point.share_percent == WHOLE and is_usable(point) and not DOUBTFUL & set(point.flags)


def _in_its_unit(profile: Profile, point: SoloPoint) -> Profile:
    """With the rate that was measured, the demand that it met, and whether it was in bursts."""
    return replace(
        profile,
        rate_unit=point.rate_unit,
        active_idle_power_w=point.active_idle_power_w or profile.active_idle_power_w,
        values={**profile.values, "rate": point.rate * profile.values["rate"]},
        flags=(*point.flags, *profile.flags),
        serving=serving_of([point]),
        in_bursts=computes_in_bursts(point),
        gpu_uuids=frozenset([point.gpu_uuid]),
    )
