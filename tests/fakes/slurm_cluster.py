"""A real Slurm on loopback: one node with a GPU that is no GPU, set up by `api/slurm/setup.sh`.

Its daemons are children of the test, in the foreground; slurmd has a process namespace of its own,
so that jobs and MPS daemons end with it. With books there are slurmdbd and MariaDB, too.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from slurm_lua import write_settings
from waiting import PATIENCE_S, eventually

SETUP = Path(__file__).parents[2] / "api/slurm/setup.sh"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "unshare", "setpriv")
OF_BOOKS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db")


@dataclass(frozen=True)
class Cluster:
    """A running Slurm; `etc` has its configuration, `folder` all else."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]]

    @property
    def etc(self) -> Path:
        return self.folder / "etc"

    @property
    def mps(self) -> Path:
        """Where the MPS daemons live."""
        return self.folder / "mps"

    def run(
        self, *command: str | Path, user: str = "root", script: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """A command of Slurm by a user, and what it said."""
        become = [] if user == "root" else ["setpriv", f"--reuid={user}", "--clear-groups"]
        return subprocess.run(
            [*become, *command],
            input=script,
            env=environment(self.folder),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def manage(self, *words: str) -> None:
        """Change the books."""
        done = self.run("sacctmgr", "-i", *words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{self.logs()}"

    def submit(self, script: str, *options: str) -> tuple[str, str]:
        """The number of a submitted job, and what the user was shown."""
        done = self.run("sbatch", "--parsable", *options, script=f"#!/bin/bash\n{script}\n")
        assert done.returncode == 0, done.stderr + self.log("slurmctld")
        return done.stdout.strip(), done.stderr

    def node_state(self) -> str:
        return self.run("sinfo", "-h", "-o", "%T").stdout.strip()

    def set_node(self, *settings: str) -> None:
        name = self.run("sinfo", "-h", "-o", "%n").stdout.strip()
        self.run("scontrol", "update", f"NodeName={name}", *settings)

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol show job` says, by name; comments with all their words."""
        text = self.run("scontrol", "show", "job", number).stdout
        lines = dict(line.strip().split("=", 1) for line in text.splitlines() if "=" in line)
        words = dict(word.split("=", 1) for word in text.split() if "=" in word)
        return words | {name: lines.get(name, "") for name in ("AdminComment", "Comment")}

    def await_state(self, number: str, *states: str) -> dict[str, str]:
        eventually(
            lambda: self.job(number)["JobState"] in states,
            lambda: f"{self.job(number)}{self.logs()}",
        )
        return self.job(number)

    def await_turn(self, number: str) -> str:
        """The state of a job after the scheduler has looked whether there is room for it."""

        def state() -> str:
            job = self.job(number)
            waits = job["JobState"] == "PENDING" and job["Reason"] == "None"
            return "" if waits else job["JobState"]

        return eventually(state, self.logs)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))

    def point_at(self, address: str, **more: str) -> None:
        """Write `advisor.conf`, and let what decides read it."""
        write_settings(self.etc, address, facts=str(self.folder / "facts"), **more)
        kill(self, "match")
        (self.folder / "facts").unlink(missing_ok=True)
        start(self, "match")


def environment(folder: Path, **more: str) -> Mapping[str, str]:
    """Of Slurm's programs and of the set-up, without the caller's own Slurm or GPU."""
    path = f"{Path(__file__).parent / 'mps'}:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "LC_ALL": "C", "SLURM_CONF": str(folder / "etc/slurm.conf"), **more}


def run_setup(
    folder: Path,
    command: str,
    gpus: int = 1,
    advisor: str = "",
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`setup.sh` into the folder; `advisor` is the program that the Prolog starts."""
    files = " ".join(str(file) for file in _gpu_files(folder, gpus))
    variables = {
        "SLURM_FOLDER": str(folder / "etc"), "RUN_FOLDER": str(folder / "mps"),
        "SLURM_USER": "root", "STATE_FOLDER": str(folder / "state"), "GPU_FILES": files,
        "CPUS": "8", **(more or {}),
        "MEMORY_MIB": "4000", "ADVISOR": advisor,
    }  # fmt: skip
    return subprocess.run(
        [SETUP, command],
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def slurm_cluster(
    folder: Path,
    gpus: int = 1,
    advisor: str = "",
    *,
    books: bool = False,
    settings: str = "",
    users: str = "one",
    slurm_user: str = "root",
) -> Generator[Cluster]:
    """A running Slurm; skips where one cannot be run.

    Args:
        folder: With a short name, for munge's socket; other users must be able to enter it.
        gpus: Of the node.
        advisor: The program that the Prolog starts.
        books: Whether there is accounting.
        settings: More lines of slurm.conf.
        users: How many share a node at a time, `one` or `several`.
        slurm_user: Whom slurmctld runs as.
    """
    wanted = PROGRAMS + (OF_BOOKS if books else ())
    if missing := [
        name for name in wanted if shutil.which(name, path="/usr/sbin:/usr/bin") is None
    ]:
        pytest.skip(f"needs {', '.join(missing)} ({DEBIAN})")
    if os.geteuid() != 0:
        pytest.skip("needs root, which slurmd runs as")
    if subprocess.run(
        ["unshare", "--pid", "--mount-proc", "--fork", "true"], check=False
    ).returncode:
        pytest.skip("needs a process namespace, so that nothing is left running")
    for file in _gpu_files(folder, gpus):
        os.mknod(file, 0o20666, os.makedev(1, 3))
    shutil.chown(folder, slurm_user, slurm_user)
    variables = {
        "SLURM_USER": slurm_user,
        "USERS": users,
        "BOOKS": "127.0.0.1" if books else "",
        "GPU_TYPE": "h200",
        "CPUS": f"{2 * gpus + 6}",
    }
    done = run_setup(folder, "install", gpus, advisor, variables)
    assert done.returncode == 0, done.stderr
    control, node, *of_books = _free_ports(4)
    _add_test_settings(folder, f"SlurmctldPort={control}\n{settings}", node)
    with ExitStack() as stack:
        cluster = Cluster(folder, {})
        for name in ("mariadbd", "munged", "slurmdbd", "slurmctld", "slurmd", "match"):
            stack.callback(kill, cluster, name)
        if books:
            _start_books(cluster, *of_books)
        start(cluster, *(["slurmctld", "slurmd"] if books else ["munged", "slurmctld", "slurmd"]))
        yield cluster


DEBIAN = "Debian packages slurm-wlm, munge; with books slurmdbd, mariadb-server"


def _start_books(cluster: Cluster, port: int, dbd: int) -> None:
    """MariaDB with a database of its own, slurmdbd, and the cluster in it."""
    folder = cluster.folder
    data, scratch = folder / "books", folder / "books.tmp"
    # Its own: a server that starts removes temporary tables of others from a shared one.
    scratch.mkdir()
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root",
         f"--tmpdir={scratch}", "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True, capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    (folder / "init.sql").write_text(
        "CREATE USER 'slurm'@'127.0.0.1' IDENTIFIED BY 'x';\n"
        "GRANT ALL ON *.* TO 'slurm'@'127.0.0.1';\n"
    )
    (folder / "mariadb.port").write_text(str(port))
    conf = folder / "etc/slurmdbd.conf"
    conf.write_text(
        f"DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={dbd}\nSlurmUser=root\n"
        f"AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\n"
        f"PidFile={folder}/slurmdbd.pid\nStorageType=accounting_storage/mysql\n"
        f"StorageHost=127.0.0.1\nStoragePort={port}\nStorageUser=slurm\nStoragePass=x\n"
    )
    conf.chmod(0o600)
    with (folder / "etc/slurm.conf").open("a") as text:
        text.write(f"AccountingStoragePort={dbd}\nAccountingStoragePass={folder}/munge.socket\n")
    start(cluster, "mariadbd", "munged")
    eventually((folder / "mariadb.socket").exists, cluster.logs)
    start(cluster, "slurmdbd")
    eventually(
        lambda: cluster.run("sacctmgr", "-nP", "show", "cluster").returncode == 0, cluster.logs
    )
    cluster.manage("add", "cluster", "advisor")
    cluster.manage("add", "account", "work", "Cluster=advisor")
    for user in ("root", "nobody", "games"):
        cluster.manage("add", "user", user, "Account=work", "Cluster=advisor")


def start(cluster: Cluster, *names: str) -> None:
    """Start daemons, and wait until the node takes jobs."""
    folder = cluster.folder
    port = folder / "mariadb.port"
    commands = {
        "mariadbd": ["mariadbd", "--no-defaults", f"--datadir={folder}/books", "--user=root",
                     f"--socket={folder}/mariadb.socket", "--bind-address=127.0.0.1",
                     f"--port={port.read_text() if port.exists() else ''}",
                     f"--tmpdir={folder}/books.tmp",
                     f"--init-file={folder}/init.sql", f"--pid-file={folder}/mariadb.pid"],
        "munged": ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
                   f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
                   f"--seed-file={folder}/munge.seed"],
        "slurmdbd": ["slurmdbd", "-D"],
        "slurmctld": ["setpriv", f"--reuid={folder.owner()}", f"--regid={folder.group()}",
                      "--clear-groups", "slurmctld", "-D"],
        "slurmd": ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "slurmd", "-D"],
        "match": [sys.executable, str(Path(__file__).parent / "slurm_match.py"), "slurm", "match",
                  "--settings", f"{folder}/etc/advisor/advisor.conf"],
    }  # fmt: skip
    for name in names:
        with (folder / f"{name}.log").open("ab") as log:
            cluster.daemons[name] = subprocess.Popen(
                commands[name], env=environment(folder), cwd=folder, stdout=log, stderr=log
            )
        if name == "munged":
            eventually((folder / "munge.socket").exists, cluster.logs)
    if "match" in names:
        eventually((folder / "facts").exists, cluster.logs)
    if "slurmctld" in names or "slurmd" in names:
        # A controller that was started again knows of no GPU before the node has reported.
        eventually(lambda: "Time=None" not in cluster.run("scontrol", "show", "node").stdout)
        eventually(lambda: cluster.node_state() in ("idle", "mixed"), cluster.logs)


def kill(cluster: Cluster, name: str) -> None:
    """`kill -9` of a daemon, if it runs; of slurmd with all that it has started."""
    if (process := cluster.daemons.pop(name, None)) is None:
        return
    # slurmd is the first process of its namespace, whose end ends all others; `unshare` reaps it.
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]) if name == "slurmd" and children else process.pid, signal.SIGKILL)
    process.wait(10)


def _add_test_settings(folder: Path, settings: str, node: int) -> None:
    """Folders for everything, the port of slurmd; what a site has by default."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    (folder / "spool").mkdir()
    conf = folder / "etc/slurm.conf"
    text = conf.read_text().replace(" CPUs=", f" Port={node} CPUs=")
    conf.write_text(
        f"{text}"
        f"AuthInfo=socket={folder}/munge.socket\n"
        f"SlurmdSpoolDir={folder}/spool\n"
        f"SlurmctldPidFile={folder}/slurmctld.pid\n"
        f"SlurmdPidFile={folder}/slurmd.pid\n"
        "SlurmdUser=root\n"
        f"{settings}"
        "JobAcctGatherType=jobacct_gather/none\n"
        "MpiDefault=none\n"
        "KillWait=1\n"
        "SlurmdParameters=config_overrides\n"
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1\n"
    )


def _gpu_files(folder: Path, gpus: int) -> list[Path]:
    return [folder / f"nvidia{index}" for index in range(gpus)]


def _free_ports(count: int) -> list[int]:
    """Different ones, below those that the kernel gives to connections.

    The daemons take them a while later, so one call gives all of a cluster.
    """
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            probe, port = stack.enter_context(socket.socket()), random.randrange(10_240, 32_000)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        return found
