"""Tables of the report's page."""

from collections.abc import Iterable, Sequence
from html import escape


def details(summary: str, content: str) -> str:
    """Content that opens when it is asked for; it is HTML already."""
    return f"<details>\n<summary>{escape(summary)}</summary>\n{content}\n</details>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    lines = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in rows)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )
