"""A thread of the service that looks again and again."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

_STOP_S = 5.0


@contextmanager
def looking(name: str, look: Callable[[], None], every_s: float) -> Generator[None]:
    """Look at once and then again and again, in a thread, until the end of the block.

    A look raises nothing.
    """
    ended = threading.Event()

    def look_until_ended() -> None:
        look()
        while not ended.wait(every_s):
            look()

    thread = threading.Thread(target=look_until_ended, daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A look that waits for a database may take longer; nothing is lost with it.
        thread.join(_STOP_S)
