"""Commands and the service speak to nobody but whom they were told, and write into their home.

They run in a network of their own (`sniffing.py`), native code as well.
"""

import dataclasses
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import synthetic_pairs as made_up
from command_line import Advisor
from host import FAKES, FakeHost
from in_process import running
from serving import serving
from store_points import observation

from advisor.client import Client
from advisor.core.gpu import NINE
from advisor.core.job import Job
from advisor.launch.folder import append_observation, create_folder
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec
from advisor_api.launches.reconciler import LaunchMetrics, ObservationImporter
from advisor_data import open_store
from advisor_data.files import write_points

PAIR = ("bert-infer-b2", "vit-train")
FILES = ("--pairs", "pairs.parquet", "--solo", "solo.csv")


COMMANDS = (
    ("doctor",),
    ("jobs", "--bundled"),
    ("recommend", *PAIR),
    ("recommend", *PAIR, "--fine", "--json"),
    ("place", "gemm:3", "triad:2", "--gpus", "2"),
    ("next",),
    ("drift",),
    ("power", "components", "gemm"),
    ("power", "input", "normal(0,1)", "--predict", "--gpu-model", "NVIDIA H200"),
    ("profile", "triad", "--gpu", "replay"),
    ("train", *FILES, "--out", "mine"),
    ("models", "promote", "./mine"),
    ("models", "check"),
    ("models", "show"),
    ("recommend", *PAIR),
    ("models", "rollback"),
    ("retrain",),
    ("data", "import", "pairs.parquet"),
    ("data", "import", "solo.csv"),
    ("evaluate", *FILES, "--quick", "--out", "evaluation"),
    ("launch", "one", "two", "--split", "70/30", "--duration", "1"),
    ("launches",),
)


@functools.cache
def _why_not() -> str | None:
    """Why this host lets no test have a network of its own; None: it does."""
    if missing := [name for name in ("unshare", "ip", "mount") if shutil.which(name) is None]:
        return f"needs {missing[0]}"
    command = ["unshare", "--net", "--mount", "ip", "link", "set", "lo", "up"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"needs a network of its own: {done.stderr.strip()}"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, fake_libraries: Path) -> FakeHost:
    if why := _why_not():
        pytest.skip(why)
    made = FakeHost(tmp_path_factory.mktemp("n"), fake_libraries)
    for name in ("work", "user", "tmp"):
        (made.folder / name).mkdir()
    (made.folder / "nvml" / "gpu0").mkdir(parents=True)
    for name in ("one", "two"):
        made.write_job(name)
    solos = [dataclasses.replace(p, idle_power_w=made_up.IDLE_W) for p in made_up.solo_points()]
    write_points(made.folder / "work/pairs.parquet", made_up.pair_points())
    write_points(made.folder / "work/solo.csv", solos)
    return made


@pytest.fixture(scope="module")
def found(host: FakeHost) -> dict[str, Any]:
    environment = host.environment(
        HOME=str(host.folder / "user"),
        TMPDIR=str(host.folder / "tmp"),
        PYTHONPATH=os.pathsep.join([str(FAKES), *sys.path]),
    )
    for name in [name for name in environment if name.startswith("XDG_")]:
        environment.pop(name)
    work = {"folder": str(host.folder), "environment": environment, "commands": COMMANDS}
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, str(FAKES / "sniffing.py")],
        input=json.dumps(work),
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.figures
@pytest.mark.slow
def test_the_watch_sees_connections_and_questions_for_names(found: dict[str, Any]) -> None:
    assert ["tcp", "203.0.113.7", 443, ""] in found["checked"]
    assert any(to == "192.0.2.53" and "telemetry" in said for _, to, _, said in found["checked"])


@pytest.mark.figures
@pytest.mark.slow
def test_every_command_did_its_work(found: dict[str, Any]) -> None:
    assert {words: said for words, (code, said) in found["ended"].items() if code} == {}


@pytest.mark.figures
@pytest.mark.slow
def test_nothing_is_sent_but_to_the_service(found: dict[str, Any]) -> None:
    # `advisor doctor` looks for the exporter of counters on this host.
    told = (["tcp", "127.0.0.1", urlsplit(str(found["url"])).port], ["tcp", "127.0.0.1", 9400])
    assert [one for one in found["seen"] if one[:3] not in told] == []


@pytest.mark.figures
@pytest.mark.slow
def test_nothing_is_written_beside_the_home(host: FakeHost, found: dict[str, Any]) -> None:
    """No cache and no file of a library in the user's folder; what was asked for is in the work."""
    assert found["url"]
    assert [*(host.folder / "user").rglob("*")] == [*(host.folder / "tmp").rglob("*")] == []
    work = {path.name for path in (host.folder / "work").iterdir()}
    assert work == {"pairs.parquet", "solo.csv", "mine", "evaluation"}


# Traces of requests and launches: only where they are asked for, and what they say.


export: Any = pytest.importorskip("opentelemetry.sdk.trace.export", reason="needs the extra otel")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield kept
    provider.shutdown()


def test_requests_are_traced_where_they_are_to_be(spans: Any, tmp_path: Path) -> None:
    for otel in (False, True):
        with running(tmp_path / str(otel), otel=otel) as api:
            api.ask("GET", "/v1/profiles/triad", token := api.token("read"))
    found = spans.get_finished_spans()
    assert [span.name for span in found] == ["GET /v1/profiles/{job}"]
    assert found[0].attributes["http.response.status_code"] == 200
    assert token not in found[0].to_json()


def test_a_launch_is_a_span_from_its_start_to_its_end(spans: Any, tmp_path: Path) -> None:
    seen = observation(started_at="2026-01-31T12:00:00+00:00", overlap_s=60.0, energy_j=600.0)
    parts = tuple(LaunchPart(job=Job(name=name, command=("a",))) for name in seen.jobs)
    pair = LaunchSet(split=NINE[2], parts=parts)
    spec = LaunchSpec(launch_id="20260131-120000-abcdef", gpu="GPU-1", pairs=(pair,))
    folder = create_folder(tmp_path / "launches", spec)
    append_observation(folder.path, seen)
    for _ in range(2):
        with open_store(f"sqlite:///{tmp_path}/a.db", tmp_path) as store:
            ObservationImporter(store, LaunchMetrics()).bring_in(folder)
    (span,) = spans.get_finished_spans()
    assert (span.name, span.end_time - span.start_time) == ("launch", 60 * 10**9)
    assert span.attributes["advisor.energy_joules"] == 600
    assert span.attributes["advisor.jobs"] == seen.jobs


def test_nothing_is_sent_to_nowhere(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    said = advisor("serve", "--port", "0", "--otel")
    assert (said.code, "OTEL_EXPORTER_OTLP_ENDPOINT" in said.err) == (2, True)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.exporter")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    said = advisor("serve", "--port", "0", "--otel")
    assert "[otel]'" in said.err


@pytest.mark.slow
def test_what_a_service_did_has_come_when_it_has_ended(tmp_path: Path) -> None:
    came: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Says nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        where = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
        for options in ([], ["--otel"]):
            assert came == []
            folder = tmp_path / f"{len(options)}"
            with serving(folder, options, **where) as served, Client(served.url) as client:
                client.jobs()
        collector.shutdown()
    sent = dict(came)
    assert sent.keys() == {"/v1/traces", "/v1/metrics"}
    assert any(b"GET /v1/jobs" in body for _, body in came)
    assert b"advisor_launches_silent" in sent["/v1/metrics"]
