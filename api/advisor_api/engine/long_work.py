"""Threads for what takes long: lists out of the database, long bodies.

Recommendations have other threads, so that however many lists are read, they wait for none.
"""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
"""Python runs one at a time; more would only make the event loop wait for its turn."""

_POOL = ThreadPoolExecutor(THREADS, "long-work")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns or raises; the event loop goes on meanwhile."""
    call = functools.partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_POOL, call)
