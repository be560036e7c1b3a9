"""Heads of requests as they are written again: without offers, and with the host of an address."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor_api.http.connections import without_offer

NAME = st.from_regex(rb"[a-z-]{1,12}", fullmatch=True)
VALUE = st.from_regex(rb"[!-~]{1,20}", fullmatch=True)


@given(st.lists(st.tuples(NAME, VALUE)))
def test_all_other_headers_stay(headers: list[tuple[bytes, bytes]]) -> None:
    offer = [(b"upgrade", b"h2c"), (b"http2-settings", b"AA")]
    kept = [(n, v) for n, v in headers if n not in (b"upgrade", b"http2-settings", b"connection")]
    head = without_offer(b"GET", b"/a?b", "1.1", [*offer, *kept, (b"connection", b"Upgrade, x")])
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert first == b"GET /a?b HTTP/1.1"
    assert lines == [b"%b: %b" % pair for pair in kept] + [b"connection:  x"]


def test_a_value_with_a_line_end_begins_no_header() -> None:
    """What the parser might take for a folded line is refused where it would be written again."""
    with pytest.raises(ValueError, match="x"):
        without_offer(b"GET", b"/", "1.1", [(b"x", b"a\r\nhost: evil")])
