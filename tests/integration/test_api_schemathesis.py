"""schemathesis over the whole OpenAPI, against a real process: what it makes up finds nothing."""

import importlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host import FakeHost
from hypothesis import HealthCheck, settings
from launch_server import LaunchServer, launch_server, make_tokens
from launched import no_leftovers

# Its types are known in part only.
schemathesis: Any = importlib.import_module("schemathesis")

DAILY = 5
EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", DAILY))
"""Requests for each route, good and bad ones, the same in every run; more are other ones.

With more than for every change each limit of each field is tried, too: a hundred requests a route,
which every process that collects this file makes up. `make nightly` does.
"""

CHECKS: dict[str, Any] = {
    # A body may fit its schema and still name a job that is not there, or be too long; the GPU may
    # be taken.
    "negative_data_rejection": {
        "expected-statuses": ["400", "401", "403", "404", "405", "413", "415", "422"]
    },
    "positive_data_acceptance": {"expected-statuses": ["2xx", "403", "404", "409", "413", "422"]},
}

ROLLBACK: dict[str, Any] = {
    # As GET, the same path shows a model of that name.
    "include-path": "/v1/models/rollback",
    "checks": {"allow_header_conformance": {"enabled": False}},
}


LATER = "Bearer the token"

JOBS = ("one", "other")

MADE_UP = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module")
def server(fake_libraries: Path) -> Iterator[LaunchServer]:
    """A service of somebody who has stored nothing; it launches jobs on a fake GPU."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        host = FakeHost(Path(folder), fake_libraries)
        for name in JOBS:
            host.write_job(name)
        options = ("--launching", "--no-anonymous-read", "--log-level=error")
        tokens = make_tokens(host, "made-up")
        with no_leftovers(host), launch_server(host, tokens, *options) as server:
            yield server


@pytest.fixture(scope="module")
def over(server: LaunchServer) -> str:
    launch_id = server.launched(*JOBS)
    server.stop_launch(launch_id)
    return launch_id


CONFIG = {
    "checks": CHECKS,
    "phases": {"coverage": {"enabled": EXAMPLES > DAILY}},
    "operations": [ROLLBACK],
}

schema = schemathesis.openapi.from_path(
    Path(__file__).parents[2] / "api/openapi.json",
    config=schemathesis.config.SchemathesisConfig.from_dict(CONFIG),
)


@schema.auth()
class Admin:
    """Somebody who may do everything; where leaving the token out is what is tried, it is not set.

    Requests are made up before the service runs, so the token is not known yet.
    """

    def get(self, _case: Any, _context: Any) -> str:
        return LATER

    def set(self, case: Any, data: str, _context: Any) -> None:
        case.headers["Authorization"] = data


@pytest.mark.slow
@schema.parametrize()
@MADE_UP
def test_no_finding(case: Any, server: LaunchServer, over: str) -> None:
    """Every answer is one that the contract names, in its form, whatever is sent.

    Good requests for launches name jobs and a launch that are there.
    """
    launches = case.method == "POST" and case.path == "/v1/launches"
    if case.headers.get("Authorization") == LATER:
        case.headers["Authorization"] = f"Bearer {server.tokens['admin']}"
    if case.meta.generation.mode.is_positive:
        if launches:
            case.body = {**case.body, "jobs": list(JOBS), "gpu": 0, "then": []}
        if "launch_id" in case.path_parameters:
            case.path_parameters["launch_id"] = over
    answer = case.call_and_validate(base_url=f"http://127.0.0.1:{server.port}", timeout=240)
    if answer.status_code == 202 and launches:
        server.stop_launch(answer.json()["launch_id"])
    assert server.process.poll() is None
