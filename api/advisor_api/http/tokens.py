"""Tokens by their secret, remembered for a second: thousands of requests are not as many reads.

Whether a secret is good is known only after a look, so nobody is refused before: all that wait are
looked up in one read, good ones and guesses. Only what was found wrong counts against an address.
"""

import asyncio
import hashlib
import itertools
import re
import time
from collections.abc import Callable, Collection, Mapping

from cachetools import LRUCache

from advisor_api.http.limits import Buckets
from advisor_data.state import Token

_REMEMBERED_S = 1.0
"""So a revoked token is refused after a second at the latest."""

_KEPT = 4096
"""Good tokens that are kept, and as many wrong ones next to them."""

_AT_ONCE = 500
"""Secrets of one read."""

_SECRET = re.compile(r"adv_[A-Za-z0-9_-]{20,100}")

_WRONG_PER_S, _WRONG_BURST = 20.0, 100
"""Wrong secrets of an address that are reported as wrong; more get 429, and no line in the log."""

_Looked = tuple[float, Token | None]
"""When a secret was looked up, and what was found."""


class TokenCache:
    """Finds the token of a secret; the same answer whether it is wrong, expired or revoked.

    Secrets are looked up many in one read, which may raise a StoreError.
    """

    def __init__(self, find: Callable[[Collection[str]], Mapping[str, Token]]) -> None:
        self._find = find
        # Apart, so that guesses push no good one out.
        self._good = LRUCache[bytes, _Looked](_KEPT)
        self._bad = LRUCache[bytes, _Looked](_KEPT)
        self._wrong = Buckets(_WRONG_PER_S, _WRONG_BURST)
        self._waiting = dict[str, asyncio.Future[_Looked]]()
        self._reader: asyncio.Task[None] | None = None

    async def find(self, secret: str, address: str) -> Token | None:
        """The token of a secret that came from an address, if it is good now.

        Raises:
            HTTPException: 429, it is wrong, as were too many others from this address.
            StoreError: the database does not answer.
        """
        # Looked up by hash, so how long it takes says nothing about the secrets that are kept.
        key = hashlib.sha256(secret.encode()).digest()
        known = self._good.get(key) or self._bad.get(key)
        if known is None or time.monotonic() - known[0] >= _REMEMBERED_S:
            known = (0.0, None)
            if _SECRET.fullmatch(secret):
                known = await self._looked_up(secret)
                self._keep(key, known)
        if known[1] is None:
            self._wrong.take(address)
        return known[1]

    def _keep(self, key: bytes, known: _Looked) -> None:
        ours, other = (self._good, self._bad) if known[1] else (self._bad, self._good)
        other.pop(key, None)
        ours[key] = known

    async def _looked_up(self, secret: str) -> _Looked:
        if secret not in self._waiting:
            self._waiting[secret] = asyncio.get_running_loop().create_future()
        found = self._waiting[secret]
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        # Anyone who goes away takes the look from nobody else.
        return await asyncio.shield(found)

    async def _read(self) -> None:
        """Look up all that wait, one read after the other, until nobody does."""
        while self._waiting:
            now = dict(itertools.islice(self._waiting.items(), _AT_ONCE))
            for secret in now:
                del self._waiting[secret]
            began = time.monotonic()
            try:
                tokens = await asyncio.to_thread(self._find, now.keys())
            except Exception as error:  # noqa: BLE001 else all that wait would wait for ever
                for future in now.values():
                    future.set_exception(error)
                    future.exception()  # somebody who waited may be gone
            else:
                for secret, future in now.items():
                    future.set_result((began, tokens.get(secret)))
        self._reader = None
