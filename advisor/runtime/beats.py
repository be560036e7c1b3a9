"""Lets others hear that this process turns, also while it waits for something.

Whoever waits with a time limit beats meanwhile, so a wait of any length that is meant is told from
a process that hangs or was stopped. Only the main thread beats: listeners are not thread-safe, and
a worker thread says nothing about the main loop.
"""

import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from typing import Protocol, TypeVar

_EVERY_S = 0.2
_MOST_S = 300.0
"""What takes longer hangs, whatever it is."""

T = TypeVar("T")

_listeners = dict[Callable[[], object], float]()
"""Each with the moment at which it was told last."""


def beat() -> None:
    """Tell all who listen, a few times a second at most; does nothing outside the main thread."""
    if current_thread() is not main_thread():
        return
    now_s = time.monotonic()
    for listener, told_s in list(_listeners.items()):
        if now_s - told_s >= _EVERY_S:
            _listeners[listener] = now_s
            listener()


@contextmanager
def heard_by(listener: Callable[[], object]) -> Generator[None]:
    """Tell this one of each beat, until the end of the block."""
    _listeners[listener] = -_EVERY_S
    try:
        yield
    finally:
        del _listeners[listener]


def beating(call: Callable[[], T]) -> T:
    """What a call returns that waits by itself, as for a program or a database; beats meanwhile."""
    if not _listeners or current_thread() is not main_thread():
        return call()
    return awaited(in_thread(call))


def awaited(answer: Future[T]) -> T:
    """The result of a call that runs in another thread; beats until it is there."""
    end_s = time.monotonic() + _MOST_S
    while time.monotonic() < end_s:
        try:
            return answer.result(_EVERY_S)
        except TimeoutError:
            if answer.done():
                raise
            beat()
    return answer.result()


class RunInBackground(Protocol):
    """Starts a call, as `in_thread` does, or makes it `at_once`."""

    def __call__(self, call: Callable[[], T], /) -> Future[T]:
        """Its answer, which may be there later."""
        ...


def in_thread(call: Callable[[], T]) -> Future[T]:
    """What a call returns or raises, from a thread of its own; the process ends without it."""
    answer = Future[T]()
    Thread(target=_answer, args=(answer, call), daemon=True).start()
    return answer


def at_once(call: Callable[[], T]) -> Future[T]:
    """As `in_thread`, for calls that wait for nothing: the answer is there when this returns."""
    answer = Future[T]()
    _answer(answer, call)
    return answer


def _answer(answer: "Future[T]", call: Callable[[], T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001 - whatever it is, raised where it is waited for
        answer.set_exception(error)
