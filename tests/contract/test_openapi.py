"""The contract of the service: what is checked in is what is served."""

from pathlib import Path

from advisor_api.openapi import openapi_text

FILE = Path(__file__).parents[2] / "api/openapi.json"

RENEW = ".venv/bin/python -m advisor_api.openapi > api/openapi.json"


def test_checked_in_contract_is_the_served_one() -> None:
    """A route, key or bound changes only where a reader of the file sees it."""
    assert FILE.read_text() == openapi_text(), f"after looking at what changed, run: {RENEW}"
