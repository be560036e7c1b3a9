"""What one process of the service has open, and how routes come by it."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Request

from advisor.errors import AdvisorError
from advisor.runtime.host.lock import serving_home
from advisor.settings import Settings
from advisor_api.engine.engine import Engine
from advisor_api.http.errors import LOG, fault_of
from advisor_api.http.options import ServeOptions
from advisor_api.http.tokens import TokenCache
from advisor_api.service.metrics import Metrics
from advisor_data import Store, open_store
from advisor_data.backup import check_database
from advisor_data.state import ServiceState, open_service_state
from advisor_models.registry import Registry

_PATIENCE_S = 1.0

_REMEMBERED_S = 0.5
"""Anyone may ask, and asking must not become work for the database."""


class NotReadyError(AdvisorError):
    """The service lives and cannot answer; says which part fails, and no more, to anyone."""

    code = "not-ready"


class ServiceReadiness:
    """Looks at the parts that an answer needs; one look at a time at each.

    Any exception of a look says that the part is not ready.
    """

    def __init__(self, **parts: Callable[[], Awaitable[object]]) -> None:
        self._parts = {name: _Look(name, look) for name, look in parts.items()}

    async def check(self) -> None:
        """Nothing, if all parts are ready.

        Raises:
            NotReadyError: some part is not.
        """
        codes = {name: await part.code() for name, part in self._parts.items()}
        faults = [f"{name} ({code})" for name, code in codes.items() if code]
        if faults:
            raise NotReadyError("not ready: " + ", ".join(faults), fix="the server's log has more")


class _Look:
    """One part, and the last look at it."""

    def __init__(self, name: str, look: Callable[[], Awaitable[object]]) -> None:
        self._name, self._look = name, look
        self._task: asyncio.Task[str] | None = None
        self._began = 0.0

    async def code(self) -> str:
        """Empty where it is ready; `too-slow`, or the code of its error."""
        task = self._task
        if task is None or (task.done() and time.monotonic() - self._began > _REMEMBERED_S):
            task = self._task = asyncio.create_task(self._run())
            self._began = time.monotonic()
        # A look goes on where nobody waits any longer: the next one who asks finds its end.
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE_S)
        return task.result() if done else "too-slow"

    async def _run(self) -> str:
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001 whatever it is, the part is not ready
            LOG.warning("%s is not ready: %s", self._name, error)
            return fault_of(error).code
        return ""


_PAGES_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Service:
    """What a process of the service has open; safe for several threads."""

    settings: Settings
    options: ServeOptions
    home: str
    """Its name, by which its launches are told apart from those of other services."""
    store: Store
    state: ServiceState
    registry: Registry
    engine: Engine
    tokens: TokenCache
    readiness: ServiceReadiness
    metrics: Metrics


@contextmanager
def open_service(settings: Settings, options: ServeOptions, metrics: Metrics) -> Generator[Service]:
    """The service with its database open.

    Raises:
        BusyError: another service has the home.
        InputError: the address of the database is none.
        StoreError: the database cannot be used, or its schema is not the one of this version.
        UnsafeFileError: the home or the file of the database belongs to another user, or cannot be
            closed to others.
    """
    with ExitStack() as stack:
        home = stack.enter_context(serving_home(settings.home))
        state = stack.enter_context(open_service_state(settings.database_url, settings.home))
        store = stack.enter_context(open_store(settings.database_url, settings.home))
        registry = Registry(settings.home / "models")
        engine = Engine(settings, store, registry, state.change_count)
        stack.callback(engine.close)
        stack.enter_context(metrics.of_engine(engine))
        stack.enter_context(_checking_pages(settings))
        yield Service(
            settings=settings,
            options=options,
            home=home,
            store=store,
            state=state,
            registry=registry,
            engine=engine,
            tokens=TokenCache(state.find_tokens),
            readiness=ServiceReadiness(
                database=lambda: asyncio.to_thread(state.change_count), model=engine.manifest
            ),
            metrics=metrics,
        )


@contextmanager
def _checking_pages(settings: Settings) -> Generator[None]:
    """Look at all pages of the database meanwhile; the log says what is damaged.

    Nobody waits for it: of a large database it takes seconds, and most of it may well be good.
    """
    thread = threading.Thread(target=_check_pages, args=(settings,), daemon=True, name="pages")
    thread.start()
    try:
        yield
    finally:
        thread.join(_PAGES_S)


def _check_pages(settings: Settings) -> None:
    try:
        check_database(settings.database_url, settings.home)
    except AdvisorError as error:
        LOG.error("%s", error)


async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


ServiceOf: TypeAlias = Annotated[Service, Depends(_service)]
"""The parameter of a route that needs the service."""
