"""Does the service take up promoted models while it is asked, without a failed or mixed answer?

    .venv/bin/python docs/measurements/reload_under_load.py [--promotions 50] [--every-s 1.5]

Starts the service on a free port with a new home, which has two models: the bundled one, and the
same with other numbers in its leaves, so that every prediction differs. What each says of each pair
is asked first, while nothing changes. Then four clients ask without a pause while another process
promotes the two in turn, as `advisor retrain` does. An answer is right where it is, byte for byte,
that of one of the models; the rest is mixed. Exit code 1: a request failed, an answer was mixed, or
a promotion was not taken up. The last line is JSON.
"""

import argparse
import dataclasses
import http.client
import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from service_processes import running_service

from advisor_models.model_predictor import LEAF, NODE
from advisor_models.registry import (
    BUNDLED,
    Artefact,
    Registry,
    hashes,
    read_artefact,
    write_artefact,
)

CLIENTS = 4
VERSIONS = ("one", "two")
JOBS = ("bert-infer", "bert-train", "fft", "gemm", "matmul-bf16", "reduction", "sorting", "triad",
        "vit-infer", "vit-train", "walsh", "whisper-infer")  # fmt: skip
BODIES = [
    json.dumps({"jobs": [{"job": a}, {"job": b}]}) for a, b in itertools.combinations(JOBS, 2)
]
SMALLER = 0.8
"""What the leaves of the second model are multiplied with."""

Expected = Mapping[str, Mapping[bytes, str]]
"""By request: the answers of both models, and whose they are."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """One answer under load.

    Attributes:
        version: Of the model whose answer it is; None: of no model, or of both.
        at: End of the request, s, monotonic.
    """

    status: int
    version: str | None
    at: float
    took_s: float


def main() -> None:
    """Promote under load, and say what happened."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--promotions", type=int, default=50)
    options.add_argument("--every-s", type=float, default=1.5)
    asked = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="adv") as folder,
        running_service(Path(folder)) as (url, _),
    ):
        address, registry = urlsplit(url).netloc, Registry(Path(folder) / "home/models")
        for version in VERSIONS:
            model(Path(folder) / "home/models/versions" / version, version)
        expected = known_answers(address, registry)
        promoted, answers = under_load(address, registry, expected, asked)
    found = summary(promoted, answers)
    for name, value in found.items():
        print(f"{name}: {value}")
    print(json.dumps(found))
    sys.exit(bool(found["failed"] or found["mixed"] or found["not_taken_up"]))


def model(folder: Path, version: str) -> None:
    """A copy of the bundled model; the second one predicts something else everywhere."""
    known = read_artefact(BUNDLED)
    files = {name: data for name, data in known.files.items() if name.endswith(".trees")}
    if version != VERSIONS[0]:
        files = {name: other(data) for name, data in files.items()}
    manifest = dataclasses.replace(known.manifest, version=version, files=hashes(files))
    folder.mkdir(0o700, parents=True)
    write_artefact(folder, Artefact(manifest, files))


def other(trees: bytes) -> bytes:
    """The same trees with smaller numbers in their leaves."""
    nodes = np.frombuffer(trees, NODE).copy()
    nodes["number"][nodes["feature"] == LEAF] *= SMALLER
    return nodes.tobytes()


def ask(connection: http.client.HTTPConnection, body: str) -> tuple[int, bytes]:
    """Status and bytes of a recommendation."""
    head = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/recommendations", body, head)
    answer = connection.getresponse()
    return answer.status, answer.read()


def known_answers(address: str, registry: Registry) -> Expected:
    """What each model says, asked while nothing changes."""
    expected: dict[str, dict[bytes, str]] = {body: {} for body in BODIES}
    connection = http.client.HTTPConnection(address, timeout=60)
    for version in VERSIONS:
        registry.promote(version)
        while json.loads(ask(connection, BODIES[0])[1])["model"]["version"] != version:
            time.sleep(0.1)
        for body in BODIES:
            status, text = ask(connection, body)
            assert status == 200, text
            assert text not in expected[body], "both models say the same"
            expected[body][text] = version
    return expected


def under_load(
    address: str, registry: Registry, expected: Expected, asked: Any
) -> tuple[list[tuple[float, str]], list[Answer]]:
    """When what was promoted, and all answers meanwhile."""
    stop, answers = threading.Event(), list[Answer]()
    clients = [
        threading.Thread(target=client, args=(address, expected, number, stop, answers))
        for number in range(CLIENTS)
    ]
    for thread in clients:
        thread.start()
    promoted: list[tuple[float, str]] = []
    for number in range(asked.promotions):
        time.sleep(asked.every_s)
        registry.promote(VERSIONS[number % 2])
        promoted.append((time.monotonic(), VERSIONS[number % 2]))
    time.sleep(max(asked.every_s, 1.5))
    stop.set()
    for thread in clients:
        thread.join()
    return promoted, answers


def client(
    address: str, expected: Expected, number: int, stop: threading.Event, answers: list[Answer]
) -> None:
    """Ask about one pair after the other."""
    connection = http.client.HTTPConnection(address, timeout=60)
    for body in itertools.cycle(BODIES[number * 7 :] + BODIES[: number * 7]):
        if stop.is_set():
            return
        began = time.monotonic()
        try:
            status, text = ask(connection, body)
        except (OSError, http.client.HTTPException):
            connection.close()
            status, text = 0, b""
        ended = time.monotonic()
        answers.append(Answer(status, expected[body].get(text), ended, ended - began))


def summary(promoted: list[tuple[float, str]], answers: list[Answer]) -> dict[str, Any]:
    """What was promoted, asked, failed and mixed, and how soon each model answered."""
    good = [answer for answer in answers if answer.status == 200]
    ends = [moment for moment, _ in promoted[1:]] + [float("inf")]
    taken_up = [
        next((a.at - moment for a in answers if moment < a.at < end and a.version == version), None)
        for (moment, version), end in zip(promoted, ends, strict=True)
    ]
    known = [1000 * seconds for seconds in taken_up if seconds is not None]
    took_ms = 1000 * np.array([answer.took_s for answer in answers])
    return {
        "promotions": len(promoted),
        "requests": len(answers),
        "failed": len(answers) - len(good),
        "mixed": sum(answer.version is None for answer in good),
        "not_taken_up": taken_up.count(None),
        "taken_up_median_ms": round(float(np.median(known)), 1),
        "taken_up_most_ms": round(max(known), 1),
        "latency_p50_ms": round(float(np.median(took_ms)), 2),
        "latency_p99_ms": round(float(np.quantile(took_ms, 0.99)), 2),
        "latency_most_ms": round(float(took_ms.max()), 1),
    }


if __name__ == "__main__":
    main()
