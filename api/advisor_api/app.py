"""The application: routes behind one gate, and the service opened and closed with it."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from functools import partial

from fastapi import FastAPI

import advisor
from advisor.settings import Settings
from advisor_api.demo import Marked, replaying
from advisor_api.http.access import ServeOptions
from advisor_api.http.routing import Gate, add_routes, answer_errors
from advisor_api.launches.cards import HostCards
from advisor_api.launches.launching import Board
from advisor_api.launches.reconciler import reconciling, watching_drift
from advisor_api.openapi import describe
from advisor_api.routes import pages, v1
from advisor_api.service import Metrics, Service, open_service

# In the order of the pages of the API.
_ROUTERS = (
    v1.recommendations,
    v1.placements,
    v1.profiles,
    v1.models,
    v1.observations,
    v1.power,
    v1.launches,
    v1.overview,
    v1.audit,
    v1.health,
    pages.router,
)


def create_app(settings: Settings, options: ServeOptions) -> FastAPI:
    """The application; its lifespan opens the database, and raises what `open_service` raises."""
    metrics = Metrics()
    app = FastAPI(
        title="advisor",
        summary="How should two to seven jobs share one GPU?",
        version=advisor.__version__,
        lifespan=partial(_open, settings, options, metrics),
        # Ours is sent zipped, with the pages.
        openapi_url=None,
        # Pages of other hosts, which the usual ones load, are refused by the browser and by us.
        docs_url=None,
        redoc_url=None,
        # A redirect is made of the Host header and the path, so both could choose where it leads.
        redirect_slashes=False,
        # Our own metrics say the rest. What the environment names gets nothing unasked.
        telemetry={
            "tracing": options.otel,
            "operation_spans": False,
            "metrics": False,
            "logs": False,
            "auto_configure": False,
        },
    )
    app.state.metrics, app.state.replayed, app.state.contract = metrics, options.replayed, None
    app.add_middleware(Gate, options=options, metrics=metrics)
    if options.replayed:
        app.add_middleware(Marked)
    answer_errors(app)
    add_routes(app, _ROUTERS)
    describe(app)
    return app


@asynccontextmanager
async def _open(
    settings: Settings, options: ServeOptions, metrics: Metrics, app: FastAPI
) -> AsyncGenerator[None]:
    """What the routes answer from, open as long as they are asked."""
    with (
        open_service(settings, options, metrics) as service,
        reconciling(service),
        # What plays says nothing new of its jobs, and would have all answers made again.
        nullcontext() if options.replayed else watching_drift(service),
        _board(service) as board,
    ):
        app.state.service, app.state.board = service, board
        await service.engine.warm_up()
        yield


@contextmanager
def _board(service: Service) -> Generator[Board]:
    if not service.options.replayed:
        with closing(HostCards(service.settings)) as cards:
            yield Board(service, cards.look)
    else:
        with replaying(service.settings) as replay:
            yield Board(service, replay.cards, replay.now)
