"""What a job asks that is to join others."""

from advisor.core.gpu import Split
from advisor.launch.spec import Forecast, LaunchPart, LaunchSet, LaunchSpec


def to_join(
    part: LaunchPart,
    *beside: LaunchPart,
    share_percent: float = 50.0,
    forecast: Forecast | None = None,
    is_low: bool = False,
) -> LaunchSpec:
    """A job at this share beside the running jobs."""
    shares, low = (*(50.0 for _ in beside), share_percent), (len(beside),) * is_low
    split = Split(shares, below_normal=low)
    made = LaunchSet(split=split, parts=(*beside, part), forecast=forecast)
    return LaunchSpec(launch_id="l", gpu="0", pairs=(made,))
