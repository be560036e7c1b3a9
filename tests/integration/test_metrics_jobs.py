"""Servers that are counted by their Prometheus page, from end to end: real pages, a fake driver."""

import sys
from typing import Any

import pytest
from host import FAKES, FakeHost
from launched import await_nobody, launch
from metrics_job import LATENCY_S, STEPS_PER_S, TOKENS
from waiting import free_port

from advisor.formats.rows import flat
from advisor.scrape.fetch import answers

pytestmark = pytest.mark.slow


def write_server(
    host: FakeHost, counter: str = "fake:generation_tokens_total", idle_s: float = 0, **more: Any
) -> str:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    page = {"url": url, "counter": counter, "histogram": "fake:e2e_seconds"}
    host.write_job(
        "server",
        command=[sys.executable, str(FAKES / "metrics_job.py"), str(port), str(idle_s)],
        progress={"kind": "metrics", "unit": "tokens", **page},
        **more,
    )
    return url


def test_profile_of_a_server(host: FakeHost) -> None:
    url = write_server(host)
    half, whole = host.answer("profile", "server", "--shares", "50,100", "--window", "3")["points"]
    # A busy host is late, never early.
    for point, part in ((half, 0.5), (whole, 1.0)):
        assert 0.6 < point["rate"] / (part * STEPS_PER_S * TOKENS) <= 1.02
    assert not answers(url)
    for point in (half, whole):
        # All took 80 ms, in a bucket from 50 to 100 ms.
        assert point["latency_p50_ms"] == pytest.approx(75, rel=0.1)
        assert 1000 * LATENCY_S < point["latency_p99_ms"] <= 103


def test_launch_of_a_server_beside_a_job(host: FakeHost) -> None:
    write_server(host, max_p99_ms=500)
    host.write_job("one")
    last = launch(host, "server", "one", "--split", "50/50", "--duration", "6")
    assert last["state"] == "stopped"
    server = last["jobs"][0]
    assert server["proven"]
    assert server["error"] is None
    assert [w for w in last["warnings"] if "has no profile" not in w] == []
    (seen,) = map(flat, last["observations"])
    assert seen["job_2"] == "server"
    assert 0.25 * STEPS_PER_S * TOKENS < seen["rate_2"] <= 0.55 * STEPS_PER_S * TOKENS
    assert 1000 * LATENCY_S < seen["latency_p99_2_ms"] <= 103
    await_nobody(host)


@pytest.mark.parametrize(
    ("counter", "more", "said"),
    [
        ("fake:e2e_seconds_bucket", {}, "is a histogram, not a counter"),
        ("fake:tokens_total", {"start_timeout_s": 3}, "near ones: fake:generation_tokens_total"),
        ("fake:generation_tokens_total", {"max_p99_ms": 2000}, "the last bucket"),
    ],
)
def test_a_server_that_is_not_counted_says_why(
    host: FakeHost, counter: str, more: dict[str, Any], said: str
) -> None:
    url = write_server(host, counter, **more)
    done = host.advisor("profile", "server", "--shares", "100", "--window", "0.5")
    assert done.returncode != 0
    assert said in done.stderr.replace("\n", " ")
    assert not answers(url)
