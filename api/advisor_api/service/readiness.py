"""Whether the service can answer: its database and its model, each looked at in bounded time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from advisor.errors import AdvisorError
from advisor_api.http.errors import LOG, fault_of

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
