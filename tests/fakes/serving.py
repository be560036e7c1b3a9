"""A real `advisor serve` in a process of its own, with a home of its own."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forked import Forked, start_forked
from new_database import make_home
from waiting import announced, ending

from advisor_data.state import ServiceState


@dataclass(frozen=True, slots=True)
class Served:
    """A service that listens; its database and models are in its home."""

    url: str
    home: Path
    log: Path
    process: Forked

    def token(self, name: str, *scopes: str) -> str:
        with ServiceState(None, self.home) as state:
            return state.make_token(name, scopes, None)[1]


@contextmanager
def serving(folder: Path, options: Sequence[str] = (), **more: str) -> Generator[Served]:
    """Run `advisor serve` on a free port until the end of the block; its home is in the folder."""
    home, log = make_home(folder / "home"), folder / "serve.log"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "CUDA_"))}
    environment = {**kept, "ADVISOR_HOME": str(home), "ADVISOR_RUNTIME_DIR": str(folder / "run")}
    words = ("serve", "--port", "0", *options)
    with (
        log.open("wb") as output,
        start_forked(words, environment | more, folder, output, output) as process,
        ending(process),
    ):
        yield Served(announced(process, log, r"advisor listens on (\S+)\n"), home, log, process)
