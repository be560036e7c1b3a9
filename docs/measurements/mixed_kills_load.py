"""What works on the host of `mixed_kills.py`: requests, and launches that come and go."""

import random
import time
from collections.abc import Callable, Sequence

from mixed_kills_site import COMMAND_S, GPUS, Site
from store_points import observation

from advisor.formats.rows import to_row
from advisor.runtime.processes import wait_until

PAIRS = (("gemm", "triad"), ("fft", "sorting"), ("bert-infer", "triad"), ("gemm", "vit-infer"))


def requests(site: Site, name: str) -> None:
    """Mixed requests until it is over: some ten a second."""
    chance, number = site.chance(f"requests {name}"), 0
    kinds: dict[str, tuple[float, Callable[[], object]]] = {
        "advice, warm": (0.4, lambda: _advice(site, chance, "advice, warm")),
        "advice, never asked": (
            0.2,
            lambda: _advice(site, chance, "advice, never asked", max_power_w=_power_w(chance)),
        ),
        "observation": (0.2, lambda: _observe(site, f"{name}-{number}", chance)),
        "launches": (0.1, lambda: site.request("launches", "GET", "/v1/launches?limit=50")),
        "observations": (
            0.1,
            lambda: site.request("observations", "GET", "/v1/observations?limit=20"),
        ),
    }
    weights = [weight for weight, _ in kinds.values()]
    while not site.over.is_set():
        number += 1
        [kind] = chance.choices(list(kinds), weights)
        kinds[kind][1]()
        time.sleep(chance.expovariate(10))


def _power_w(chance: random.Random) -> float:
    """More than any of the pairs draws."""
    return 800 + 300 * chance.random()


def _advice(site: Site, chance: random.Random, what: str, **more: object) -> None:
    jobs = [{"job": job} for job in chance.choice(PAIRS)]
    site.request(what, "POST", "/v1/recommendations", {"jobs": jobs, "min_speed": 0, **more})


def _observe(site: Site, name: str, chance: random.Random) -> None:
    seen = observation(chance.randrange(80_000), launch_id=f"sent-{name}", power_w=_power_w(chance))
    said = site.request("observation", "POST", "/v1/observations", {"observations": [to_row(seen)]})
    if said["status"] == 200:
        assert seen.power_w is not None
        site.posted[seen.launch_id] = seen.power_w


def launches(site: Site, gpu: int) -> None:
    """One launch after the other on a GPU: begun, joined and ended over HTTP or by commands."""
    chance = site.chance(f"launches {gpu}")
    free_s = time.monotonic()
    while not site.over.is_set():
        by_http = chance.random() < 0.5
        jobs = chance.sample(("one", "two", "short", "gemm"), 2)
        launch_id = _begin(site, gpu, jobs, by_http=by_http)
        if launch_id is None:
            if time.monotonic() - free_s > COMMAND_S:
                site.fault(f"nothing could be launched on GPU {gpu} for {COMMAND_S:g} s")
                free_s = time.monotonic()
            time.sleep(1)
            continue
        site.launched.add(launch_id)
        time.sleep(chance.uniform(1, 6))
        if chance.random() < 0.5:
            _join(site, launch_id, by_http=by_http)
        # Long enough now and then for a guard to find that its supervisor stands still.
        time.sleep(
            chance.choice((chance.uniform(1, 10), chance.uniform(1, 10), chance.uniform(20, 50)))
        )
        _end(site, launch_id, by_http=by_http)
        free_s = time.monotonic()


def _begin(site: Site, gpu: int, jobs: Sequence[str], *, by_http: bool) -> str | None:
    if by_http:
        body = {"jobs": [{"job": job} for job in jobs], "split": "26/50", "gpu": GPUS[gpu]}
        return site.request("launch", "POST", "/v1/launches", body).get("launch_id")
    words = ("--split", "26/50", "--gpu", GPUS[gpu], "--detach")
    return site.command("launch", *jobs, *words).stdout.strip() or None


def _join(site: Site, launch_id: str, *, by_http: bool) -> None:
    if by_http:
        body = {"jobs": [{"job": "third"}], "share_percent": 26}
        site.request("join", "POST", f"/v1/launches/{launch_id}/joins", body)
    else:
        site.command("launch", "--join", launch_id, "third", "--share", "26")


def _end(site: Site, launch_id: str, *, by_http: bool) -> None:
    begun_s, folder = time.monotonic(), site.launch(launch_id)
    if by_http:
        site.request("stop", "DELETE", f"/v1/launches/{launch_id}")
    else:
        site.command("launches", "stop", launch_id)
    # A stop waits 30 s for a supervisor that is silent; the service may be away for as long.
    if not wait_until(lambda: folder.read_status().over, COMMAND_S):
        site.fault(f"{launch_id} did not end within {COMMAND_S:g} s: {folder.read_status()}")
    site.note("from a stop to the end of the launch", time.monotonic() - begun_s)
    status = folder.read_status()
    site.counts[f"launch {status.state} {status.code or ''}".strip()] += 1
    if status.code not in (None, "job", "supervisor-gone"):
        site.counts[f"{status.code}: {(status.cause or '')[:200]}"] += 1
    if status.code in ("internal", "system"):
        site.fault(f"{launch_id}: {status.code}: {status.cause}")
