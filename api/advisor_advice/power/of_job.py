"""What the power of one job alone goes to, at each share of its profile."""

from advisor.core.records import SoloPoint
from advisor.settings import Settings
from advisor.wire.components import ComponentsOfJob, PowerParts, ShareParts
from advisor_advice.power.known import KnownPower, known_power
from advisor_power.components.activity import Activity
from advisor_power.components.parts import components


def components_of_job(
    name: str, settings: Settings, gpu_model: str | None = None
) -> ComponentsOfJob:
    """The parts of a job's power, from the newest trusted window at each share.

    Raises:
        InputError: the job has no profile with counters, or too few jobs were measured.
        StoreError: the store cannot be read.
    """
    return components_by_share(known_power([name], settings, gpu_model))


def components_by_share(known: KnownPower) -> ComponentsOfJob:
    """The same of the first job of those whose power is known.

    Raises:
        InputError: it has no window with counters.
    """
    name = known.found.a.job
    return ComponentsOfJob(
        job=name,
        gpu_model=known.found.a.gpu_model,
        power_limit_w=known.power_limit_w,
        weights=known.fitted_to,
        shares=tuple(
            ShareParts(share_percent=share, power=_window(known, *window))
            for share, window in known.windows(name).items()
        ),
    )


def _window(known: KnownPower, point: SoloPoint, activity: Activity) -> PowerParts:
    found = components(known.weights, activity, point.power_w or 0.0, point.memory_power_w)
    return known.told(found, "measured", activity.clock_mhz)
