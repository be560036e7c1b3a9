"""`advisor replicas` and `advisor.replicas`: how many copies of one job a GPU holds."""

from pathlib import Path

from advisor.core.gpu import parse_memory_mib
from advisor.core.split import MOST_JOBS
from advisor.settings import read_settings
from advisor.wire.answers import Replicas
from advisor.wire.requests import MIN_GAIN, ReplicasRequest
from advisor_advice.answer import set_request_of
from advisor_advice.ask.words import ByJob, job_requests, longest_p99_ms, read_gain, words
from advisor_advice.set_advice import advise_replicas
from advisor_advice.site.known_jobs import read_known
from advisor_advice.site.known_profiles import find_profiles


def replicas(
    job: str,
    *,
    most: int = MOST_JOBS,
    min_speed: ByJob = None,
    max_p99: ByJob = None,
    max_power: float | None = None,
    memory: float | str | None = None,
    cores: float | None = None,
    min_gain: float = MIN_GAIN,
    isolate: bool = False,
    gpu_model: str | None = None,
    gpu_uuid: str | None = None,
    profiles: str | Path | None = None,
) -> Replicas:
    """How many copies of a job run on one GPU, and what ends their number.

    Args:
        job: Name of a profiled job.
        most: Copies that are looked at; beyond 7 nothing was measured.
        min_speed: As of `recommend`, with all that follow.
        max_p99: Such as `50ms`.
        max_power: W.
        memory: In MiB or as `80GiB`.
        cores: Host cores for all copies together.
        min_gain: Least gain of one more copy, as a part.
        isolate: Whether a fault of one copy must leave the others running.
        gpu_model: Such as `NVIDIA H200`.
        gpu_uuid: The card.
        profiles: A file of solo points.

    Raises:
        InputError: no profile, or an option that cannot be meant.
        ModelError: there is no model, or it is damaged.
        NoSplitError: not even one copy keeps its limits.
        StoreError: what was measured here cannot be read.
    """
    by_job_ms, for_all_ms = longest_p99_ms(words(max_p99), [job])
    asked = ReplicasRequest(
        jobs=job_requests([job], [job], words(min_speed), by_job_ms),
        most=most,
        max_p99_ms=for_all_ms,
        max_power_w=max_power,
        memory_mib=None if memory is None else parse_memory_mib(str(memory)),
        min_gain=read_gain(min_gain),
        gpu_model=gpu_model,
        gpu_uuid=gpu_uuid,
        isolate=isolate,
        host_cores=cores,
    )
    settings, file = read_settings(), None if profiles is None else Path(profiles)
    found = find_profiles([job], settings, gpu_model, file)
    known = read_known(found, settings, gpu_uuid, any_of=True)
    return advise_replicas(known, set_request_of(asked, settings), most)
