"""The process of the cluster: webhook and chooser behind one HTTPS port."""

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as _PLAIN
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from advisor.client import Client
from advisor.errors import AdvisorError
from advisor_api.http.access import ANONYMOUS_READER, Caller
from advisor_api.http.connections import CERTIFIED
from advisor_api.http.errors import answer_errors
from advisor_api.http.gate import Gate, HttpMetrics
from advisor_api.http.limits import QUESTION, Most
from advisor_api.http.options import ServeOptions
from advisor_kubernetes import names
from advisor_kubernetes.admission import Advise, review
from advisor_kubernetes.chooser import Chooser, Lease
from advisor_kubernetes.cluster import Cluster
from advisor_kubernetes.objects import read_object
from advisor_kubernetes.pairing import Policy
from advisor_node.advice import Advice, Answer, NoAnswer, Question

LOG = logging.getLogger("advisor.kubernetes")

_HANGS_S = 120.0
"""A round takes as long as its answers; one that takes this long does not come back."""

_PAUSE_S = 1.0

_ENDS_S = 5.0


class Choosing:
    """The chooser, the mirrors that feed it, and who it is; its Lease is in the namespace.

    Attributes:
        metrics: Of the whole process.
        username: The chooser's name as the API server sees it; None: not known yet.
    """

    def __init__(self, cluster: Cluster, service: Client, namespace: str, policy: Policy) -> None:
        self.metrics = HttpMetrics()
        self.username: str | None = None
        self._cluster = cluster
        lease = Lease(cluster, namespace, f"{socket.gethostname()}-{os.urandom(4).hex()}")
        self._chooser = Chooser(cluster, Advice(service), lease, policy, self.metrics)
        self._stopping = threading.Event()

    @property
    def lives(self) -> bool:
        """Whether the chooser still comes round, once it has begun."""
        return self.username is None or time.monotonic() - self._chooser.last_round_s < _HANGS_S

    @property
    def is_full(self) -> bool:
        """Whether no GPU is free that pods could share; also where another process chooses."""
        return self._chooser.is_full

    @property
    def ready(self) -> bool:
        """Whether the cluster was seen: rights and addresses are good."""
        return self.username is not None and self._chooser.synced

    @contextmanager
    def running(self) -> Generator[None]:
        """Choose until the end of the block."""
        runs = (*(mirror.run for mirror in self._chooser.mirrors), self._choose)
        # Daemons: a watch may wait for its next event for minutes.
        threads = [threading.Thread(target=r, args=(self._stopping,), daemon=True) for r in runs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            threads[-1].join(_ENDS_S)

    def _choose(self, stopping: threading.Event) -> None:
        # The webhook refuses what the chooser writes until it knows who that is.
        while self.username is None and not stopping.is_set():
            try:
                self.username = self._cluster.username()
            except AdvisorError as error:
                LOG.warning("%s", error)
                stopping.wait(_PAUSE_S)
        self._chooser.run(stopping)


PATIENCE_S = 1.0
"""Of the 2 s that the API server waits; a pod without advice is as it came."""


class Adviser:
    """One question at a time; answers are kept for a minute."""

    def __init__(self, client: Client) -> None:
        self._advice = Advice(client)
        self._lock = threading.Lock()

    def __call__(self, question: Question) -> Answer:
        """The answer; none where the service is away or has too much to do."""
        if not self._lock.acquire(timeout=PATIENCE_S / 2):
            return NoAnswer("too much is asked at once")
        try:
            return self._advice.answers([question])[question]
        finally:
            self._lock.release()


_POD = Most(7 * 512 * 1024, 200_000)
"""The API server takes objects of 1.5 MiB by default; an update has the old one, too."""


class _Gate(Gate):
    """The gate of `advisor serve`, for callers that have no tokens.

    Answers depend on the request alone, so whoever asks learns nothing and changes nothing. Names
    in Host headers are those of Kubernetes' services, and no browser comes here.
    """

    def __init__(self, app: ASGIApp, *, certified: bool, **more: Any) -> None:
        super().__init__(app, **more)
        self._certified = certified

    async def caller(self, scope: Scope, headers: Mapping[bytes, bytes], address: str) -> Caller:
        if self._certified and scope["path"] == "/mutate" and CERTIFIED not in scope:
            raise HTTPException(403, "only who shows a certificate of the API server is answered.")
        return ANONYMOUS_READER

    def check_host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        pass


def create_app(
    options: ServeOptions, choosing: Choosing, adviser: Advise, host_paths: Sequence[str] = ()
) -> Starlette:
    """The application; its lifespan starts and ends the chooser."""
    metrics = choosing.metrics

    def most_of(path: str) -> Most:
        return _POD if path == "/mutate" else QUESTION

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        with choosing.running():
            yield

    app = Starlette(
        routes=[
            Route("/mutate", _mutate(choosing, adviser, host_paths), methods=["POST"]),
            _get("/healthz", lambda: _state(choosing.lives, "the chooser has stopped")),
            _get("/readyz", lambda: _state(choosing.ready, "the cluster was not listed yet")),
            _get("/metrics", lambda: Response(metrics.text(), media_type=_PLAIN)),
        ],
        middleware=[
            Middleware(
                _Gate,
                certified=options.client_ca is not None,
                options=options,
                metrics=metrics,
                most_of=most_of,
            )
        ],
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.metrics = metrics
    answer_errors(app)
    return app


def _mutate(
    choosing: Choosing, adviser: Advise, host_paths: Sequence[str]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        answer = partial(
            review, read_object(body), choosing.username, host_paths,
            is_full=choosing.is_full, advise=adviser,
        )  # fmt: skip
        # All others ask nobody, and take a millisecond.
        asks = names.PLACED_BY.encode() in body
        return JSONResponse(await asyncio.to_thread(answer) if asks else answer())

    return endpoint


def _get(path: str, answer: Callable[[], Response]) -> Route:
    async def endpoint(_: Request) -> Response:
        return answer()

    return Route(path, endpoint, methods=["GET"])


def _state(good: bool, otherwise: str) -> Response:
    if not good:
        raise HTTPException(503, f"{otherwise}.")
    return JSONResponse({"status": "ok"})
