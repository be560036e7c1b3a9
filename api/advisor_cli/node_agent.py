"""What agents and choosers have in common: what ends them, and the service that they ask."""

import logging
import signal
import threading
from pathlib import Path

from advisor.client import Client
from advisor.core.wording import JsonFormatter, PrintableFormatter
from advisor.settings import Settings


def ended_by_signals() -> threading.Event:
    """Set by SIGTERM and SIGINT, which then end nothing by themselves."""
    stop = threading.Event()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def log_lines(
    handler: logging.Handler, log_format: str = "text", form: str = "%(levelname)s %(message)s"
) -> None:
    """Log there, in lines that steer no terminal."""
    handler.setFormatter(JsonFormatter() if log_format == "json" else PrintableFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else each request is a line


def client_of(
    service: str, service_ca: Path | None, settings: Settings, timeout_s: float = 5.0
) -> Client:
    """The service at an address, with the token of the environment.

    Raises:
        InputError: one of these cannot be used.
    """
    token = settings.secrets().get("ADVISOR_TOKEN")
    return Client(service, token, timeout_s=timeout_s, verify=service_ca or True)
