"""What the power of jobs goes to, as the service tells it."""

from fastapi.responses import Response

from advisor.wire.components import ComponentsOfPair
from advisor.wire.requests import RecommendationRequest
from advisor_api.engine import bundled
from advisor_api.schemas.sending import long_answer
from advisor_api.service.service import Service

# What works the parts out is imported with the first question: most services are asked none.


async def of_job(service: Service, job: str, gpu_model: str | None) -> Response:
    """One job alone at each share.

    Raises:
        InputError: it has no profile with counters, or too few jobs were measured.
        StoreError: the store cannot be read.
    """
    from advisor_power.components.answers import components_by_share

    known = await service.engine.known_power([job], gpu_model)
    return await long_answer(lambda: components_by_share(known))


async def of_pair(service: Service, a: str, b: str, gpu_model: str | None) -> Response:
    """Two jobs at each split.

    Raises:
        InputError: as for one job.
        ModelError: there is no model, or it is damaged.
        StoreError: the store cannot be read.
    """
    from advisor_power.components.answers import components_by_split

    known = await service.engine.known_power([a, b], gpu_model)
    asked = RecommendationRequest.of(a, b, min_speed=0.0, gpu_model=known.gpu_model)
    given = await service.engine.answer(asked)

    def told() -> ComponentsOfPair:
        stored = service.store.pair_points(jobs=known.pair_names)
        points = [*stored, *bundled.pair_points().get(known.pair_names, [])]
        return components_by_split(known, given.recommendation, points)

    return await long_answer(told)
