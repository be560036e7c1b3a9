"""What was measured of one GPU model so far, as the choice of what to measure next needs it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.records import Observation, PairPoint, SoloPoint
from advisor.predict.profiles import Profile
from advisor_training.dataset.data import make_data
from advisor_training.next.choice import PairNames, PairUse, use_of

_JOBS = 2


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MeasuredSoFar:
    """What is known of one GPU model, and of the jobs that can be measured on it.

    Attributes:
        jobs: Names of the jobs that can be started here.
        measured: Pairs of the GPU model that a model can learn from, names in order.
        learned: What the jobs of measured pairs use of the GPU, on any GPU model; of pairs that
            still are as they were measured.
        pairs_of: In how many measured pairs each job is, on any GPU model.
        asked: How often two jobs were launched together on the GPU model, names in order.
        checked: Whether its safe counts are known, or need not be.
        drifting: Jobs that are no longer as they were measured.
    """

    gpu_model: str
    jobs: Collection[str]
    profiles: Mapping[str, Profile]
    measured: Collection[PairNames]
    learned: Sequence[PairUse]
    pairs_of: Mapping[str, int]
    asked: Mapping[PairNames, int]
    checked: bool
    drifting: Collection[str] = ()


def measured_so_far(
    pairs: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint],
    observations: Iterable[Observation],
    *,
    gpu_model: str,
    jobs: Collection[str],
    checked: bool,
    drifting: Collection[str] = (),
) -> MeasuredSoFar:
    """What is known of one GPU model by all points that a model would be trained on, of any.

    `checked` and `drifting` are as of `MeasuredSoFar`.

    Raises:
        InputError: nothing can be learned from the points.
    """
    data = make_data(pairs, profiled, references)
    found = {(*pair.jobs, pair.gpu_model) for pair in data.pairs}
    uses = {key: use_of(profile) for key, profile in data.profiles.items()}
    profiles = {job: of_job for (job, model), of_job in data.profiles.items() if model == gpu_model}
    return MeasuredSoFar(
        gpu_model=gpu_model,
        jobs=jobs,
        profiles=profiles,
        measured={(a, b) for a, b, model in found if model == gpu_model},
        learned=[
            (uses[a, model], uses[b, model])
            for a, b, model in sorted(found)
            if {a, b}.isdisjoint(drifting)
        ],
        pairs_of=Counter(job for a, b, _ in found for job in {a, b}),
        asked=_asked(observations, gpu_model),
        checked=checked,
        drifting=drifting,
    )


def _asked(observations: Iterable[Observation], gpu_model: str) -> Counter[PairNames]:
    """Recommendations leave no record; launches do, and they are what counts."""
    of_pairs = (o for o in observations if o.gpu_model == gpu_model and len(o.jobs) == _JOBS)
    return Counter((o.jobs[0], o.jobs[1]) for o in of_pairs)
