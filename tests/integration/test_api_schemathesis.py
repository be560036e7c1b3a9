"""schemathesis over the whole OpenAPI, against a real process: what it makes up finds nothing."""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from serving import Served, serving

# Its types are known in part only.
schemathesis: Any = importlib.import_module("schemathesis")

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "20"))
"""Requests for each route, good and bad ones, the same in every run; more are other ones."""

CONFIG: dict[str, Any] = {
    "checks": {
        # A body may fit its schema and still name a job that is not there, or be too long;
        # launching is off.
        "negative_data_rejection": {
            "expected-statuses": ["400", "401", "403", "404", "405", "413", "415", "422"]
        },
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "403", "404", "409", "413", "422"]
        },
    },
    "operations": [
        {
            # As GET, the same path shows a model of that name.
            "include-path": "/v1/models/rollback",
            "checks": {"allow_header_conformance": {"enabled": False}},
        }
    ],
}


LATER = "Bearer the token"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of somebody who has stored nothing."""
    with serving(
        tmp_path_factory.mktemp("served"), ["--no-anonymous-read", "--log-level", "error"]
    ) as served:
        yield served


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    """Of somebody who may do everything."""
    return served.token("tester", "admin")


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
        """What stands for the token."""
        return LATER

    def set(self, case: Any, data: str, _context: Any) -> None:
        """Put it in."""
        case.headers["Authorization"] = data


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_no_finding(case: Any, served: Served, token: str) -> None:
    """Every answer is one that the contract names, in its form, whatever is sent."""
    if case.headers.get("Authorization") == LATER:
        case.headers["Authorization"] = f"Bearer {token}"
    case.call_and_validate(base_url=served.url, timeout=30)
