"""What one process of the service has open, counts and records, and how routes come by it."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Request
from prometheus_client import Gauge

from advisor.errors import AdvisorError, StoreError
from advisor.files import serving_home
from advisor.formats.moments import now
from advisor.formats.rows import P
from advisor.settings import Settings
from advisor_api.engine import Engine
from advisor_api.http.access import Caller, ServeOptions, TokenCache
from advisor_api.http.routing import LOG, HttpMetrics, fault_of
from advisor_data import Store, open_store
from advisor_data.state import AuditEntry, ServiceState
from advisor_data.store import check_database
from advisor_models.registry import Manifest, Registry


class Metrics(HttpMetrics):
    """The numbers of one process of the service."""

    def __init__(self) -> None:
        super().__init__()
        self._model = Gauge(
            "advisor_model_info", "1 for the model in use", ("version",), registry=self.registry
        )
        self._model_made = self.gauge(
            "model_created_timestamp_seconds", "When the model in use was made, s since 1970"
        )

    def show_model(self, model: Manifest) -> None:
        """Show which model is in use, and when it was made."""
        self._model.clear()
        self._model.labels(model.version).set(1)
        self._model_made.set(datetime.fromisoformat(model.created_at).timestamp())


_PATIENCE_S = 1.0

# Anyone may ask, and asking must not become work for the database.
_REMEMBERED_S = 0.5


class NotReadyError(AdvisorError, code="not-ready"):
    """The service lives and cannot answer; says which part fails, and no more, to anyone."""


class ServiceReadiness:
    """Looks at the parts that an answer needs; one look at a time at each.

    Any exception of a look says that the part is not ready.
    """

    def __init__(self, **parts: Callable[[], Awaitable[object]]) -> None:
        self._parts, self._looks = parts, dict[str, tuple[float, asyncio.Task[str]]]()

    async def check(self) -> None:
        """Nothing, if all parts are ready.

        Raises:
            NotReadyError: some part is not.
        """
        codes = {name: await self._code(name) for name in self._parts}
        if faults := [f"{name} ({code})" for name, code in codes.items() if code]:
            raise NotReadyError("not ready: " + ", ".join(faults), fix="the server's log has more")

    async def _code(self, name: str) -> str:
        """Empty where a part is ready; `too-slow`, or the code of its error."""
        began_s, task = self._looks.get(name, (0.0, None))
        if task is None or (task.done() and time.monotonic() - began_s > _REMEMBERED_S):
            task = asyncio.create_task(self._look(name))
            self._looks[name] = time.monotonic(), task
        # A look goes on without a caller: the next one finds its result.
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE_S)
        return task.result() if done else "too-slow"

    async def _look(self, name: str) -> str:
        try:
            await self._parts[name]()
        except Exception as error:  # noqa: BLE001 whatever it is, the part is not ready
            LOG.warning("%s is not ready: %s", name, error)
            return fault_of(error).code
        return ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Service:
    """What a process of the service has open; safe for several threads.

    Attributes:
        home: Identifier that separates its launches from those of other services.
    """

    settings: Settings
    options: ServeOptions
    home: str
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
        state = stack.enter_context(ServiceState(settings.database_url, settings.home))
        store = stack.enter_context(open_store(settings.database_url, settings.home))
        registry = Registry(settings.home / "models")
        engine = Engine(settings, store, registry, state.change_count)
        stack.callback(engine.close)
        metrics.registry.register(engine)
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

    It runs beside the start: of a large database it takes seconds, and most of it may well be good.
    """
    thread = threading.Thread(target=_check_pages, args=(settings,), daemon=True, name="pages")
    thread.start()
    try:
        yield
    finally:
        thread.join(5.0)


def _check_pages(settings: Settings) -> None:
    try:
        check_database(settings.database_url, settings.home)
    except AdvisorError as error:
        LOG.error("%s", error)


async def _service(request: Request) -> Service:
    return cast("Service", request.app.state.service)


ServiceOf: TypeAlias = Annotated[Service, Depends(_service)]
"""The parameter of a route that needs the service."""


@dataclass(frozen=True, slots=True)
class RequestAudit:
    """Records what one request does."""

    state: ServiceState
    caller: Caller
    request_id: str
    client: str

    def signed(self, records: Iterable[P]) -> list[P]:
        """The records signed by this caller, whatever writer they name."""
        return [replace(record, written_by=self.caller.name) for record in records]

    @property
    def owner(self) -> str | None:
        """Whose records this caller may take away; None: anybody's."""
        return None if "admin" in self.caller.scopes else self.caller.name

    @contextmanager
    def of(self, action: str, subject: str) -> Generator[None]:
        """Record an action before it begins, and how it ended: `done`, or the code of its error.

        It writes to the database, so it belongs in a thread (a `def` route, or `to_thread`).

        Raises:
            StoreError: it could not be recorded; nothing was done.
        """
        self._record(action, subject, "begun")
        try:
            yield
        except Exception as error:  # only to write down how it ended
            self._record_end(action, subject, fault_of(error).code)
            raise
        self._record_end(action, subject, "done")

    def _record(self, action: str, subject: str, outcome: str) -> None:
        self.state.audit(
            AuditEntry(
                at=now(),
                who=self.caller.name,
                action=action,
                subject=subject,
                outcome=outcome,
                request_id=self.request_id,
                client=self.client,
            )
        )

    def _record_end(self, action: str, subject: str, outcome: str) -> None:
        # It has happened, and its beginning is in the log: an error now would tell a lie.
        try:
            self._record(action, subject, outcome)
        except StoreError as error:
            LOG.error("%s: the audit log has no end of %s: %s", self.request_id, action, error)


async def _audit(request: Request, service: ServiceOf) -> RequestAudit:
    caller, request_id = request.scope["advisor.caller"], request.scope["advisor.request_id"]
    return RequestAudit(
        service.state, caller, request_id, request.client.host if request.client else ""
    )


Audited: TypeAlias = Annotated[RequestAudit, Depends(_audit)]
"""The parameter of a route that changes something: `with audited.of("replace-profile", job):`."""


@contextmanager
def changing(service: Service, audited: RequestAudit, action: str, subject: str) -> Generator[None]:
    """Write something that answers depend on: it is in the audit log, and counts at once.

    Raises:
        StoreError: it could not be recorded; nothing was done.
    """
    with audited.of(action, subject):
        try:
            yield
        finally:
            service.engine.present.changed()


_STOP_S = 5.0


@contextmanager
def looking(name: str, look: Callable[[], None], every_s: float) -> Generator[None]:
    """Look at once and then again and again, in a thread, until the end of the block.

    An error of a look is logged, and the next look comes all the same.
    """
    ended = threading.Event()

    def look_until_ended() -> None:
        while True:
            try:
                look()
            except AdvisorError as error:
                LOG.error("no look at %s: %s", name, error)
            except Exception:  # noqa: BLE001 the service answers on whatever happens here
                LOG.exception("a look at %s failed", name)
            if ended.wait(every_s):
                return

    thread = threading.Thread(target=look_until_ended, daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A look that waits for a database may take longer; nothing is lost with it.
        thread.join(_STOP_S)
