"""Tokens by their secret, remembered for a second: thousands of requests are not as many reads."""

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable

from advisor_api.limits import Buckets
from advisor_data.service_state import Token

_REMEMBERED_S = 1.0
"""So a revoked token is refused after a second at the latest."""

_KEPT = 4096

_SECRET = re.compile(r"adv_[A-Za-z0-9_-]{20,100}")

_UNKNOWN_PER_S, _UNKNOWN_BURST = 20.0, 100
"""Secrets that an address may try: guessing 32 bytes is hopeless, but each costs a read."""


class TokenCache:
    """Finds the token of a secret; the same answer whether it is wrong, expired or revoked.

    Args:
        find: Looks a secret up in the database; raises StoreError.
    """

    def __init__(self, find: Callable[[str], Token | None]) -> None:
        self._find = find
        self._found: OrderedDict[bytes, tuple[float, Token | None]] = OrderedDict()
        self._unknown = Buckets(_UNKNOWN_PER_S, _UNKNOWN_BURST)
        # One read at a time: when a second is over, 64 connections would all look up one token.
        self._reading = asyncio.Lock()

    async def find(self, secret: str, address: str) -> Token | None:
        """The token of a secret, if it is good now.

        Args:
            secret: What the caller sent.
            address: Where it came from.

        Raises:
            HTTPException: 429, the address tries too many secrets.
            StoreError: the database does not answer.
        """
        # Looked up by hash, so how long it takes says nothing about the secrets that are kept.
        key = hashlib.sha256(secret.encode()).digest()
        known = self._found.get(key)
        if known and time.monotonic() - known[0] < _REMEMBERED_S:
            return known[1]
        if not _SECRET.fullmatch(secret):
            return None
        return await self._look_up(key, secret, address)

    async def _look_up(self, key: bytes, secret: str, address: str) -> Token | None:
        async with self._reading:
            known = self._found.get(key)
            began = time.monotonic()
            if known and began - known[0] < _REMEMBERED_S:
                return known[1]
            if known is None or known[1] is None:
                self._unknown.take(address)
            token = await asyncio.to_thread(self._find, secret)
            self._found[key] = (began, token)
            self._found.move_to_end(key)
            if len(self._found) > _KEPT:
                self._found.popitem(last=False)
            return token
