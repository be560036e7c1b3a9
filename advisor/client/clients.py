"""The two clients: one blocks, one is awaited. All else they share."""

import asyncio
import functools
import inspect
import time
import typing
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from advisor.client import launching, managing, recommending, recorded
from advisor.client.connection import TIMEOUT_S, Verify, options, request, socket_of
from advisor.client.exchange import Ask, AskResult, Flow

P = ParamSpec("P")
T = TypeVar("T")


def _described(run: Any, make: Callable[..., Any]) -> Any:
    """`run` with the name, text and parameters of `make`, for help() and editors."""
    functools.update_wrapper(run, make)
    written = inspect.signature(make)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    *_, result = typing.get_args(written.return_annotation)
    run.__signature__ = written.replace(
        parameters=[first, *written.parameters.values()], return_annotation=result
    )
    return run


def _blocking(make: Callable[P, Flow[T]]) -> Callable[Concatenate["Client", P], T]:
    """The method that goes through the steps of a call and returns what they end in."""

    def run(client: "Client", *args: P.args, **kwargs: P.kwargs) -> T:
        return client._run(make(*args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return _described(run, make)


def _awaited(make: Callable[P, Flow[T]]) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    """As `_blocking`, for a method that is awaited."""

    async def run(client: "AsyncClient", *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._run(make(*args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return _described(run, make)


class Client:
    """A service, spoken to one request after the other; several threads may share it.

    Args:
        url: Such as `http://127.0.0.1:8765`; of a Unix socket `unix:/run/advisor.sock`.
        token: As `advisor tokens create` printed it; None: what may be done without.
        timeout_s: For each answer. What takes the service longer by nature gets that on top.
        verify: Whose certificate is trusted: True, those that the system trusts; a file, those in
            it; False, anyone's, so that anyone on the way can read the token.

    Raises:
        InputError: one of these cannot be used.

    Every method raises a `ClientError`: `ApiError` where the service refuses or fails,
    `UnreachableError`, `TooSlowError` or `AnswerError` where it gives no answer that can be used.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        verify: Verify = True,
    ) -> None:
        self._timeout_s = timeout_s
        path = socket_of(url)
        self._http = httpx.Client(
            **options(url, token, timeout_s, verify),
            transport=None if path is None else httpx.HTTPTransport(uds=path),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    recommend = _blocking(recommending.recommend)
    recommend_batch = _blocking(recommending.recommend_batch)
    place = _blocking(recommending.place)

    jobs = _blocking(recorded.jobs)
    profile = _blocking(recorded.profile)
    put_profile = _blocking(recorded.put_profile)
    delete_profile = _blocking(recorded.delete_profile)
    import_points = _blocking(recorded.import_points)
    pair_points = _blocking(recorded.pair_points)
    observe = _blocking(recorded.observe)
    observations = _blocking(recorded.observations)
    job_components = _blocking(recorded.job_components)
    pair_components = _blocking(recorded.pair_components)
    sensors = _blocking(recorded.sensors)
    kernels = _blocking(recorded.kernels)
    input_power = _blocking(recommending.input_power)

    launch = _blocking(launching.launch)
    plan_launch = _blocking(launching.plan_launch)
    launches = _blocking(launching.launches)
    launch_status = _blocking(launching.launch_status)
    stop_launch = _blocking(launching.stop_launch)
    wait = _blocking(launching.wait)

    models = _blocking(managing.models)
    model = _blocking(managing.model)
    evaluation = _blocking(managing.evaluation)
    promote = _blocking(managing.promote)
    rollback = _blocking(managing.rollback)
    audit = _blocking(managing.audit)
    healthy = _blocking(managing.healthy)
    ready = _blocking(managing.ready)

    def _run(self, flow: Flow[T]) -> T:
        result: AskResult = None
        while True:
            try:
                step = flow.send(result)
            except StopIteration as end:
                return end.value
            if isinstance(step, Ask):
                result = self._ask(step)
            else:
                time.sleep(step.duration_s)
                result = None

    def _ask(self, ask: Ask) -> AskResult:
        try:
            return self._http.request(**request(ask, self._timeout_s))
        except httpx.TransportError as error:
            return error


class AsyncClient:
    """As `Client`, with every method awaited; for one asyncio loop."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        verify: Verify = True,
    ) -> None:
        self._timeout_s = timeout_s
        path = socket_of(url)
        self._http = httpx.AsyncClient(
            **options(url, token, timeout_s, verify),
            transport=None if path is None else httpx.AsyncHTTPTransport(uds=path),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    recommend = _awaited(recommending.recommend)
    recommend_batch = _awaited(recommending.recommend_batch)
    place = _awaited(recommending.place)

    jobs = _awaited(recorded.jobs)
    profile = _awaited(recorded.profile)
    put_profile = _awaited(recorded.put_profile)
    delete_profile = _awaited(recorded.delete_profile)
    import_points = _awaited(recorded.import_points)
    pair_points = _awaited(recorded.pair_points)
    observe = _awaited(recorded.observe)
    observations = _awaited(recorded.observations)
    job_components = _awaited(recorded.job_components)
    pair_components = _awaited(recorded.pair_components)
    sensors = _awaited(recorded.sensors)
    kernels = _awaited(recorded.kernels)
    input_power = _awaited(recommending.input_power)

    launch = _awaited(launching.launch)
    plan_launch = _awaited(launching.plan_launch)
    launches = _awaited(launching.launches)
    launch_status = _awaited(launching.launch_status)
    stop_launch = _awaited(launching.stop_launch)
    wait = _awaited(launching.wait)

    models = _awaited(managing.models)
    model = _awaited(managing.model)
    evaluation = _awaited(managing.evaluation)
    promote = _awaited(managing.promote)
    rollback = _awaited(managing.rollback)
    audit = _awaited(managing.audit)
    healthy = _awaited(managing.healthy)
    ready = _awaited(managing.ready)

    async def _run(self, flow: Flow[T]) -> T:
        result: AskResult = None
        while True:
            try:
                step = flow.send(result)
            except StopIteration as end:
                return end.value
            if isinstance(step, Ask):
                result = await self._ask(step)
            else:
                await asyncio.sleep(step.duration_s)
                result = None

    async def _ask(self, ask: Ask) -> AskResult:
        try:
            return await self._http.request(**request(ask, self._timeout_s))
        except httpx.TransportError as error:
            return error
