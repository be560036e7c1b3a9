"""The application: routes and pages behind one gate, and the service opened and closed with it.

Pages for people, and the contract for programs, are the same for everyone, so without a token. What
pages show they ask of /v1, with whatever token their reader has.
"""

import json
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from string import Template

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response

import advisor
from advisor.settings import Settings
from advisor_api.demo import Marked, replaying
from advisor_api.http.access import ServeOptions
from advisor_api.http.routing import Gate, add_routes, answer_errors, ready_answer
from advisor_api.launches.cards import HostCards
from advisor_api.launches.launching import Board
from advisor_api.launches.reconciler import reconciling, watching_drift
from advisor_api.openapi import describe
from advisor_api.routes import v1
from advisor_api.service import Metrics, Service, open_service

_pages = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).with_name("pages")

PAGES: Mapping[str, tuple[str, str]] = {
    "/": ("Overview", "overview.js"),
    "/jobs": ("Jobs", "jobs.js"),
    "/matrix": ("Matrix", "matrix.js"),
    "/job": ("Job", "job.js"),
    "/set": ("Set", "set.js"),
    "/queue": ("Queue", "queue.js"),
    "/models": ("Models", "models.js"),
    "/model": ("Model", "model.js"),
    "/launches": ("Launches", "launches.js"),
    "/launch": ("Launch", "launch.js"),
    "/docs": ("HTTP API", "api.js"),
}
"""Title and script of each page by its path."""

CONTRACT = ("/v1/openapi.json", "/openapi.json")
"""Where the service describes itself: beside what it describes, and where programs look first."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def _file(content: bytes, suffix: str) -> Callable[[Request], Response]:
    # Asked for again each time, so an upgrade shows at once; unchanged it costs no body. A
    # browser wants the icon with every change of an address, and that can be an old one.
    return ready_answer(
        content, content, _TYPES[suffix], "max-age=86400" if suffix == ".svg" else "no-cache"
    )


_REPLAYED = (
    '<p class="replayed" role="note"><strong>Replayed.</strong> Launches of windows that were '
    "recorded on an H100 and an H200, much faster than they were; no GPU is in use.</p>"
)


def _read_files(note: str) -> dict[str, Callable[[Request], Response]]:
    """All files by path. They are few and small: read once, and no request names one of a disk."""
    shell = Template((FOLDER / "shell.html").read_text(encoding="utf-8"))
    pages = {
        path: _file(shell.substitute(title=title, script=script, note=note).encode(), ".html")
        for path, (title, script) in PAGES.items()
    }
    others = {
        f"/pages/{path.name}": _file(path.read_bytes(), path.suffix)
        for path in FOLDER.iterdir()
        if path.suffix in _TYPES and path.suffix != ".html"
    }
    return {**pages, **others}


# By whether the service plays records.
_FILES = {False: _read_files(""), True: _read_files(_REPLAYED)}


def _answer(request: Request) -> Response:
    if (file := _FILES[request.app.state.replayed].get(request.url.path)) is None:
        raise HTTPException(404)
    return file(request)


def _contract(request: Request) -> Response:
    state = request.app.state
    if state.contract is None:
        text = json.dumps(request.app.openapi(), ensure_ascii=False, separators=(",", ":"))
        state.contract = _file(text.encode(), ".json")
    return state.contract(request)


for _path in CONTRACT:
    _pages.add_api_route(_path, _contract, methods=["GET"])
for _path in (*PAGES, "/pages/{name}"):
    _pages.add_api_route(_path, _answer, methods=["GET"])


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
    # In the order of the pages of the API.
    add_routes(
        app,
        (
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
            _pages,
        ),
    )
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
