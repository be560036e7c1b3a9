"""Jobs of a launch with what their profiles know, and what was asked for them."""

import math
from dataclasses import replace

from advisor.core.job import Job
from advisor.decide.recommendation import Request
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.predict.profiles import Profile
from advisor_advice.site.known_profiles import ProfileSet


def with_profiles(pair: LaunchSet, found: ProfileSet) -> LaunchSet:
    """The jobs with what profiles know: rates alone, and memory that their files do not tell."""
    of_jobs = zip(pair.parts, found.profiles, pair.split.shares, strict=True)
    return replace(pair, parts=tuple(_with_profile(*known) for known in of_jobs))


def with_limits(pair: LaunchSet, found: ProfileSet, criteria: Request) -> LaunchSet:
    """The jobs with what was asked for them: who joins them later is held to it."""
    parts = (
        replace(
            part,
            min_speed=criteria.min_speed.get(part.job.name),
            max_p99_ms=criteria.longest_p99_ms(profile),
            max_power_w=criteria.max_power_w,
        )
        for part, profile in zip(pair.parts, found.profiles, strict=True)
    )
    return replace(pair, parts=tuple(parts))


def _with_profile(part: LaunchPart, profile: Profile, share_percent: float) -> LaunchPart:
    return replace(
        part,
        job=_with_memory(part.job, profile.memory_used_mib),
        solo_rate=profile.whole_gpu_rate,
        share_rate=_share_rate(profile, share_percent),
        solo_power_w=profile.whole_gpu_power_w,
        idle_power_w=None if math.isnan(profile.idle_power_w) else profile.idle_power_w,
        reported=_reported(part.job, profile),
    )


def _share_rate(profile: Profile, share_percent: float) -> float | None:
    """What the profile says of a share alone; None below the smallest measured one."""
    known = share_percent >= profile.shares[0]
    return float(profile.at([share_percent])["rate"][0]) if known else None


def _reported(job: Job, profile: Profile) -> str | None:
    """What exactly this job reported on the whole GPU."""
    job_hash, values = profile.reported or (None, None)
    return values if job_hash == job.job_hash else None


def _with_memory(job: Job, used_mib: float | None) -> Job:
    if job.memory_mib is not None or used_mib is None:
        return job
    return replace(job, memory_mib=math.ceil(used_mib))
