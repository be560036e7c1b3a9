"""What a request may be before anything looks at its meaning: its host, its path, how often."""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import Scope

from advisor.core.wording import shown
from advisor_api.http.options import ServeOptions

_CALLERS = 10_000
"""Callers whose rate is kept; one that was forgotten starts again."""

_HOSTS = 64

_LONGEST_PATH = 8192
"""Bytes of a path."""

_NEEDED_ONCE = (b"host", b"content-length", b"content-type", b"authorization", b"idempotency-key")


@dataclass(frozen=True, slots=True)
class Most:
    """What a body may have at most."""

    bytes: int
    keys: int
    """Of all its objects together: each that is wrong costs time."""


QUESTION = Most(64 * 1024, 1_000)
"""Some names, and a number for each."""

BATCH = Most(1024 * 1024, 20_000)
"""A thousand questions."""

ROWS = Most(1024 * 1024, 100_000)
"""A thousand rows of up to a hundred columns."""

_LONGER = {
    "/v1/recommendations/batch": BATCH,
    "/v1/power/input": BATCH,
    "/v1/points": ROWS,
    "/v1/observations": ROWS,
}


def most_of(path: str) -> Most:
    """What the body of a request to this path may have."""
    if path.startswith("/v1/profiles/"):
        return ROWS
    return _LONGER.get(path, QUESTION)


class Buckets:
    """A token bucket for each caller: a burst at once, and a steady rate that goes on for ever."""

    def __init__(self, per_s: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._now = per_s, burst, now
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, cost: float = 1) -> None:
        """Count a request as so many; one that costs more than a burst needs a whole one.

        Raises:
            HTTPException: 429, it came too soon; with the time to wait.
        """
        now = self._now()
        left, since = self._left.get(caller, (float(self._burst), now))
        left = min(float(self._burst), left + (now - since) * self._per_s)
        cost = min(cost, self._burst)
        if left < cost:
            wait_s = math.ceil((cost - left) / self._per_s)
            raise HTTPException(
                429,
                f"{self._per_s:g} requests a second are allowed. Wait {wait_s} s.",
                headers={"Retry-After": str(wait_s)},
            )
        self._left[caller] = (left - cost, now)
        self._left.move_to_end(caller)
        if len(self._left) > _CALLERS:
            self._left.popitem(last=False)


class Hosts:
    """Which Host headers are ours: a page of another site may have its name lead to us."""

    def __init__(self, options: ServeOptions) -> None:
        names = ("localhost", options.host, *options.allowed_hosts)
        self._names = {name.lower().strip("[]") for name in names}
        # Those that were found good, as they came: to look is cheaper than to read.
        self._good: set[bytes] = set()

    def check(self, host: bytes, local_address: str) -> None:
        """Let a host pass.

        Raises:
            HTTPException: 421, it is another's; 400, it is none.
        """
        if host in self._good:
            return
        name = _name_of(host)
        ours = name in self._names or _is_loopback(name)
        if not (ours or name == local_address):
            raise HTTPException(
                421,
                f"this server is not {shown(name)}. Allow the name: "
                "advisor serve --allowed-host NAME.",
            )
        if ours and len(self._good) < _HOSTS:
            self._good.add(host)


def single_headers(scope: Scope) -> dict[bytes, bytes]:
    """All headers by name; those that decide something are there once.

    Raises:
        HTTPException: 400, one of them is there twice.
    """
    pairs: list[tuple[bytes, bytes]] = scope["headers"]
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        for name in _NEEDED_ONCE:
            if names.count(name) > 1:
                raise HTTPException(400, f"the header {name.decode()} is there twice.")
    return found


def check_path(scope: Scope) -> None:
    """Let a path pass that can be printed and be a name in a database.

    Raises:
        HTTPException: 400 or 414.
    """
    raw: bytes = scope["raw_path"]
    if (size := len(raw) + len(scope["query_string"])) > _LONGEST_PATH:
        raise HTTPException(
            414, f"a path may have {_LONGEST_PATH} bytes with its query, and has {size}."
        )
    if not scope["path"].isprintable() or b"%00" in scope["query_string"]:
        raise HTTPException(
            400, f"the path has characters that cannot be printed: {shown(scope['path'])}."
        )


def _name_of(host: bytes) -> str:
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        good = bool(bracket) and (not port or port.startswith(":"))
        port = port[1:]
    else:
        name, _, port = text.partition(":")
        good = True
    if not good or not name or (port and not (port.isascii() and port.isdigit())):
        raise HTTPException(400, f"Host is {shown(text)}, and should be the name of the server.")
    return name


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
