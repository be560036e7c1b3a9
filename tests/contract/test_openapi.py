"""The contract of the service: what is checked in is what is served."""

import json
from pathlib import Path

from advisor_api.openapi import openapi_text

FILE = Path(__file__).parents[2] / "api/openapi.json"

RENEW = ".venv/bin/python -m advisor_api.openapi > api/openapi.json"


def test_checked_in_contract_is_the_served_one() -> None:
    """A route, key or bound changes only where a reader of the file sees it."""
    assert FILE.read_text() == openapi_text(), f"after looking at what changed, run: {RENEW}"


def test_every_route_says_how_it_fails_and_what_it_needs() -> None:
    """Each operation documents its errors; all but health and pages name their token."""
    paths = json.loads(FILE.read_text())["paths"]
    operations = [(path, o) for path, methods in paths.items() for o in methods.values()]
    assert operations
    for path, operation in operations:
        assert "default" in operation["responses"], path
        assert operation.get("security") or not path.startswith("/v1/"), path
