"""Whether jobs fit into the memory of a card, as far as that is known. Pure."""

from collections.abc import Iterable

from advisor.errors import InputError
from advisor.predict.profiles import Profile


def check_jobs_fit(profiles: Iterable[Profile], memory_mib: float | None) -> None:
    """Refuse a card on which one of the jobs does not even run alone.

    Args:
        profiles: Of the jobs.
        memory_mib: Of the card; None: not known, so nothing is refused.

    Raises:
        InputError: a job needs more memory than the card has.
    """
    if memory_mib is None:
        return
    for profile in profiles:
        if (needed_mib := profile.memory_used_mib or 0) > memory_mib:
            raise InputError(
                f"{profile.job} needs {needed_mib:.0f} MiB of memory, the card has "
                f"{memory_mib:.0f} MiB",
                why=f"so it does not even run alone; it was measured on {profile.gpu_model}",
                fix="give the memory of the card that the jobs will run on: --memory 80GiB",
            )


def memory_unknown(profiles: Iterable[Profile], memory_mib: float | None) -> tuple[str, ...]:
    """Why nobody knows whether jobs fit, a sentence for each reason; empty: it is known."""
    profiles = tuple(profiles)
    if memory_mib is None:
        model = profiles[0].gpu_model
        return (f"the memory of the {model} is not known, so nobody checked whether both jobs fit",)
    lacking = dict.fromkeys(p.job for p in profiles if p.memory_used_mib is None)
    return tuple(f"the memory of {job} is not known, and taken as none" for job in lacking)
