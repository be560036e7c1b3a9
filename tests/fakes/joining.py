"""What a job asks that is to join others."""

from advisor.core.gpu import Split
from advisor.launch.spec import Forecast, LaunchPart, LaunchSet, LaunchSpec


def to_join(
    part: LaunchPart,
    *beside: LaunchPart,
    share_percent: float = 50.0,
    forecast: Forecast | None = None,
) -> LaunchSpec:
    """A job at this share beside the running jobs."""
    split = Split((*(50.0 for _ in beside), share_percent))
    made = LaunchSet(split=split, parts=(*beside, part), forecast=forecast)
    return LaunchSpec(launch_id="l", gpu="0", pairs=(made,))
