"""How long the best way of seven jobs takes to find, by how many of them fill the GPU.

    python docs/measurements/sets/search.py

Bundled profiles of an H100, each job that fills another one. Milliseconds: the search itself, the
first of its kind and the median of 20; what a hint takes where the set is not to share ("one job
less"); and asked of `advisor serve` over HTTP by `advisor.client.Client` on this host, the first
time (what was measured of the set is read then) and the median of 20. Before that, the very first
answer of the service, which opens the model and reads all bundled points.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from advisor.client import Client, SetRequest
from advisor.decide.recommendation import Request
from advisor.decide.ways import recommend_set, without_one
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.sets import SetPredictor, fills
from advisor_data.bundled import bundled_solo_points

GPU = "NVIDIA H100 80GB HBM3"
SMALL = ("bert-train-b2", "mobilenet-train-b2")
REPEATS = 20


def main() -> None:
    """Print the table."""
    known = make_profiles(bundled_solo_points())
    of_gpu = {job: profile for (job, gpu), profile in sorted(known.items()) if gpu == GPU}
    filling = [job for job, profile in of_gpu.items() if fills(profile) and not profile.serving]
    with served() as client:
        first = SetRequest.of(*["triad"] * 3, gpu_model=GPU)
        first_ms = times_ms(lambda _: client.recommend_set(first))[0]
        print(f"very first answer of the service: {first_ms:.0f} ms")
        table(client, of_gpu, filling)


def table(client: Client, of_gpu: Mapping[str, Profile], filling: Sequence[str]) -> None:
    """Seven jobs, of which none to seven fill."""
    request = Request(default_min_speed=0.0, min_gain=0.0)
    print("| fill | ways | search, first | median | one job less | over HTTP, first | median |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for number in range(8):
        names = [*filling[:number], *(SMALL * 4)[: 7 - number]]
        profiles = [of_gpu[name] for name in names]
        # Each with another limit: the service keeps answers.
        asked = partial(SetRequest.of, *names, gpu_model=GPU, min_gain=0.0)
        search = times_ms(lambda _, of=profiles: recommend_set(of, SetPredictor(), request))
        over_http = times_ms(lambda n, of=asked: client.recommend_set(of(min_speed=n / 1e6)))
        apart = recommend_set(profiles, SetPredictor(), replace(request, min_gain=9.0))
        fewer = times_ms(lambda _, of=apart: without_one(of, SetPredictor()))
        columns = [f"{of[0]:.0f} | {statistics.median(of):.0f}" for of in (search, over_http)]
        columns.insert(1, f"{statistics.median(fewer):.0f}")
        print(f"| {number} | {apart.searched} | {' | '.join(columns)} |")


def times_ms(ask: Callable[[int], object]) -> list[float]:
    """How long each of some askings took."""
    took = list[float]()
    for number in range(REPEATS):
        began = time.perf_counter()
        ask(number)
        took.append(1000 * (time.perf_counter() - began))
    return took


@contextmanager
def served() -> Generator[Client]:
    """A service of somebody who has stored nothing, and a client of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "advisor_cli", "serve", "--port", str(port)]
        environment = {**os.environ, "ADVISOR_HOME": home}
        silent = subprocess.DEVNULL
        service = subprocess.Popen(command, env=environment, stdout=silent, stderr=silent)
        try:
            client = Client(f"http://127.0.0.1:{port}")
            while not client.healthy():
                time.sleep(0.1)
            yield client
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
