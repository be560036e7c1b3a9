"""Tells systemd how the service is (sd_notify(3)); where nothing listens, nothing is sent."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

_PINGS = 4
"""Pings in the time after which systemd gives a service up, so that one or two may be late."""


class Systemd:
    """The socket of `Type=notify` and the watchdog of `WatchdogSec=`.

    Args:
        environment: Of this process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        # A name that begins with @ is no file (unix(7)).
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = environment.get("WATCHDOG_USEC", "0") if is_for_us else "0"
        self._every_s, self._pinged_s = int(watchdog_us) / 1e6 / _PINGS, 0.0

    def ready(self, status: str) -> None:
        """Requests are answered from now on."""
        self._say(f"READY=1\nSTATUS={status}")

    def turn(self) -> None:
        """The event loop has turned; called by nothing else, and much more often than needed."""
        now_s = time.monotonic()
        if self._every_s and now_s - self._pinged_s >= self._every_s:
            self._pinged_s = now_s
            self._say("WATCHDOG=1")

    def stopping(self) -> None:
        """Requests under way are let to end."""
        self._say("STOPPING=1\nSTATUS=requests under way end")

    def _say(self, text: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
                door.setblocking(False)
                door.sendto(text.encode(), self._address)
