"""A real PostgreSQL server for tests, on loopback, with its data in a folder of its own."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Server:
    programs: Path
    folder: Path
    port: int

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        subprocess.run([self.programs / "createdb", *options, name], check=True, timeout=50)
        return self.url(name)

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        self.run("pg_ctl", "-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-w", "-m", "immediate", "stop")

    def run(self, program: str, *arguments: str | Path) -> None:
        """Runs a server program as user postgres, as it refuses to be root."""
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        command = [self.programs / program, "-D", self.folder / "data", *arguments]
        subprocess.run(
            [*(user if os.geteuid() == 0 else []), *command],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=50,
        )


@contextmanager
def running_server() -> Generator[Server]:
    """A running server; its folder is outside pytest's, which user postgres may not enter."""
    if not (found := sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))):
        pytest.skip("no PostgreSQL server programs in /usr/lib/postgresql (package postgresql)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(found[-1].parent, Path(tempfile.mkdtemp(prefix="advisor-pg-")), port)
    try:
        if os.geteuid() == 0:
            shutil.chown(server.folder, "postgres", "postgres")
        server.run("initdb", "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(server.folder)
