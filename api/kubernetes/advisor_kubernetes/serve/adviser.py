"""Asks the service while the API server waits for the answer of the webhook."""

import threading

from advisor.client import Client
from advisor_node.advice import Advice, Answer, NoAnswer, Question

PATIENCE_S = 1.0
"""Of the 2 s that the API server waits; a pod without advice is as it came."""


class Adviser:
    """One question at a time; answers are kept for a minute."""

    def __init__(self, client: Client) -> None:
        self._advice = Advice(client)
        self._lock = threading.Lock()

    def __call__(self, question: Question) -> Answer:
        """The answer; none where the service is away or has too much to do."""
        if not self._lock.acquire(timeout=PATIENCE_S / 2):
            return NoAnswer("too much is asked at once")
        try:
            return self._advice.answers([question])[question]
        finally:
            self._lock.release()
