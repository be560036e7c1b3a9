"""Answers of a demonstration say that they are of a record."""

import json

import pytest

from advisor_api.demo.mark import with_mark


@pytest.mark.parametrize(
    "body", [b"{}", b'{"schema":5,"jobs":[]}', b'{"schema":5,"replayed":true}']
)
def test_an_object_says_so_once(body: bytes) -> None:
    """And all that it said before."""
    pairs: list[tuple[str, object]] = []
    json.loads(with_mark(body), object_pairs_hook=lambda found: pairs.extend(found))
    assert pairs.count(("replayed", True)) == 1
    assert dict(pairs) == {**json.loads(body), "replayed": True}


@pytest.mark.parametrize("body", [b"", b"[]", b"null"])
def test_what_is_no_object_stays_as_it_is(body: bytes) -> None:
    assert with_mark(body) == body
