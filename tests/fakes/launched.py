"""Launches on a fake host, followed from outside as other programs do."""

import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from host import UUID, FakeHost
from waiting import eventually

from advisor.formats.wire import to_plain
from advisor.launch.folder import LaunchFolder
from advisor.launch.spec import OVER
from advisor.runtime.job_process import (
    ResourceBounds,
    cgroup_prefix,
    end_cgroups,
    make_cgroup,
    remove_cgroup,
)
from advisor.runtime.processes import wait_until


def launch(host: FakeHost, *options: str, code: int = 0, **more: str) -> dict[str, Any]:
    """Run a launch to its end; its last word."""
    done = host.advisor("launch", *options, "--json", **more)
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def detached(host: FakeHost, *options: str) -> str:
    """Start a launch and leave; its name."""
    done = host.advisor("launch", *options, "--detach")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def folder(host: FakeHost, launch_id: str) -> Path:
    return host.folder / "home" / "launches" / launch_id


def show(host: FakeHost, launch_id: str) -> dict[str, Any]:
    """Where a launch stands, as every program of its host reads it."""
    return to_plain(LaunchFolder(folder(host, launch_id)).read_status())


def stop(host: FakeHost, launch_id: str) -> dict[str, Any]:
    """Stop a launch; its last word."""
    LaunchFolder(folder(host, launch_id)).ask_stop()
    return await_end(host, launch_id)


def await_end(host: FakeHost, launch_id: str) -> dict[str, Any]:
    """The last word of a launch, its own or that of who finds its supervisor gone."""
    return await_status(host, launch_id, lambda status: status["state"] in OVER)


def await_status(
    host: FakeHost, launch_id: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:

    def found() -> dict[str, Any] | None:
        status = show(host, launch_id)
        return status if holds(status) else None

    return eventually(found, lambda: show(host, launch_id))


def processes_of(host: FakeHost) -> dict[int, str]:
    """Jobs and supervisors of this host that live, by number."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or " Z " in (entry / "stat").read_text():
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        ours = f"ADVISOR_RUNTIME_DIR={host.folder}/".encode() in environment
        if ours and ("fake_job" in command or "advisor" in command):
            found[int(entry.name)] = command
    return found


def await_nobody(host: FakeHost) -> None:
    eventually(lambda: not processes_of(host), lambda: processes_of(host))


@contextmanager
def no_leftovers(host: FakeHost) -> Generator[None]:
    """Whatever a test does, nothing of its host lives on after it."""
    try:
        yield
    finally:
        for pid in processes_of(host):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        host.control("quit")
        # As the next launch on the GPU would.
        end_cgroups(cgroup_prefix(UUID, str(host.folder / "run")))


@contextmanager
def freezer() -> Generator[Path]:
    """A control group that freezes what enters it, until the end of the block."""
    group = Path(f"/sys/fs/cgroup/freezer/advisor-test-{os.getpid()}")
    if not group.parent.is_dir() or os.getuid() != 0:
        pytest.skip("needs a freezer, and root")
    group.mkdir()
    (group / "freezer.state").write_text("FROZEN")
    try:
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        assert wait_until(lambda: not (group / "tasks").read_text(), 10)
        group.rmdir()


def groups_are_bounded() -> bool:
    """Whether the kernel bounds the control groups of jobs here."""
    probe = make_cgroup("advisor-probe-", ResourceBounds(100, 100))
    bounded = probe is not None and (probe / "memory.max").exists()
    if probe is not None:
        remove_cgroup(probe)
    return bounded


def daemon_pid(host: FakeHost) -> int:
    return int((host.pipe_dir / "nvidia-cuda-mps-control.pid").read_text())


def wait_for_line(process: Forked, words: str) -> None:
    assert process.stdout is not None
    for text in process.stdout:
        if words in text:
            return
    raise AssertionError(f"it never said {words}")
