"""`advisor serve --socket`: the kernel says who asks, so this user needs no token."""

import grp
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from forked import Forked, run_forked, start_forked
from raw_server import environment
from reading import some

from advisor.client import ApiError, Client

NOBODY = 65534


@contextmanager
def _served(folder: Path, *options: str) -> Generator[tuple[Path, Forked]]:
    path = folder / "advisor.sock"
    words = ("serve", "--socket", str(path), *options)
    with (
        Path(os.devnull).open("w") as errors,
        start_forked(words, environment(folder / "home"), errors=errors) as process,
    ):
        try:
            assert some(process.stdout).readline().startswith(f"advisor listens on unix:{path}")
            yield path, process
        finally:
            process.kill()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for the path of a socket, and open to others of this host."""
    with tempfile.TemporaryDirectory(prefix="adv", dir="/var/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.mark.slow
def test_this_user_may_do_everything_without_a_token(folder: Path) -> None:
    """It is written down by the number of the user; the socket goes with the service.

    With a token it may do what the token allows, and no more.
    """
    with _served(folder) as (path, process):
        with Client(f"unix:{path}") as client:
            assert client.jobs()
            with pytest.raises(ApiError, match="no points of gemm"):
                client.delete_profile("gemm")
            entries = client.audit(limit=1)
        assert {(e.who, e.client) for e in entries} == {(f"uid:{os.geteuid()}",) * 2}
        words = ("tokens", "create", "reader", "--scope", "read", "--json")
        made = run_forked(words, environment(folder / "home"), folder)
        with Client(f"unix:{path}", json.loads(made.stdout)["secret"]) as reader:
            assert reader.jobs()
            with pytest.raises(ApiError, match="scope admin"):
                reader.audit()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not path.exists()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_needs_a_token_or_the_group(folder: Path) -> None:
    """A stranger of the host is nobody; a member of the group may read, write and launch."""
    name = grp.getgrgid(NOBODY).gr_name
    with _served(folder) as (path, _):
        assert _as_nobody(path, "GET", "/v1/jobs?limit=1") == 401
        assert _as_nobody(path, "GET", "/healthz") == 200
    with _served(folder, "--socket-group", name) as (path, _):
        assert _as_nobody(path, "GET", "/v1/jobs?limit=1") == 200
        assert _as_nobody(path, "DELETE", "/v1/profiles/gemm") == 404
        assert _as_nobody(path, "GET", "/v1/audit") == 403


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--socket", "s", "--socket-group", "no-such-group"], "no group no-such-group"),
        (["--socket-group", "root"], "--socket PATH"),
    ],
)
def test_options_that_do_not_fit_are_told(folder: Path, options: list[str], told: str) -> None:
    done = run_forked(("serve", *options), environment(folder / "home"), folder)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def _as_nobody(path: Path, method: str, target: str) -> int:
    if not (curl := shutil.which("curl")):
        pytest.skip("needs curl")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command = [*user, curl, "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}"]
    command += ["-X", method, "--unix-socket", str(path), f"http://localhost{target}"]
    return int(subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=20).stdout)
