"""Recorded texts, each below a line `$ NAME`.

With `RECORD=1` in the environment and one process the texts of now are recorded: read the
difference. Workers of xdist would each write back what the others have recorded.
"""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"
RECORD = "RECORD" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ


class Golden:
    """The texts of a file by name."""

    def __init__(self, name: str) -> None:
        self._file = FOLDER / name
        sections = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", self._file.read_text(), re.M)
        self.texts: dict[str, str] = dict(sections)

    def check(self, name: str, text: str) -> None:
        """Compare a text with the recorded one."""
        if RECORD:
            self.texts[name] = text
            self._file.write_text("".join(f"$ {one}\n{of}" for one, of in self.texts.items()))
        assert text == self.texts[name]
