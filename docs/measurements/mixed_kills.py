"""Does anything get lost, or pass for what it is not, where processes are killed and stopped?

    .venv/bin/python docs/measurements/mixed_kills.py [--seconds 600] [--seed 1]

On a host with two fake GPUs (tests/fakes) launches begin, are joined and ended, by HTTP and by
commands, while four clients ask the service for advice, post observations and list launches.
Meanwhile somebody picks the service, a supervisor, a guard or a shim at random, every few seconds,
and sends SIGKILL, or SIGSTOP with SIGCONT later or never. The service is started again as systemd
does. At the end all launches are stopped, and one more runs on each GPU, undisturbed.

Held throughout: a launch is shown as running, and its jobs as proven, at most 10 s after its
supervisor was last able to run; a stopped supervisor with a guard at work goes on, or is ended,
within 30 s; of a launch that is over nobody lives on; nobody's request fails while the service is
untouched. Held at the end: every observation that the service took, or a launch had kept, is
stored, and no stretch twice; every launch that was accepted is over; no process, MPS daemon,
control group, held lock or new file of the runtime folder is left; the database is whole. Exit code
1: something did not hold. Times are of this host, under whatever else it does.
"""

import argparse
import fcntl
import os
import random
import signal
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakes"))

import fake_nvml
import host as fake_host
from host import FakeHost
from launch_server import make_tokens
from mixed_kills_site import (
    GPUS,
    Asked,
    Service,
    Site,
    alive,
    launches,
    requests,
    with_variable,
    words_of,
)

from advisor.core.observations import Observation
from advisor.formats.rows import from_row
from advisor.launch.records.folder import LaunchFolder, list_folders
from advisor.launch.records.observed import observation_lines
from advisor.launch.records.status import SILENT_S
from advisor.launch.supervisor import guard
from advisor.runtime.host.cgroup import cgroup_prefix, left_cgroups
from advisor.runtime.host.processes import children_of, wait_until
from advisor_data import open_store
from advisor_data.store.lines import json_row
from advisor_profiling import SUPERVISOR

CLIENTS, LOOK_S = 4, 0.5
EVERY_S, SERVICE_EVERY_S = (1.0, 4.0), (5.0, 30.0)
NEVER = 0.25
"""Of those that are stopped so many are continued by nobody here."""

SLACK_S = 4.0
"""What a busy host and the half second between two looks add to each bound."""

GONE_S = 15.0
"""Within which nobody lives of a launch that is over: shims end their jobs 3 s after both of those
that watch are gone, and a job has 5 s to end by itself."""

KINDS = {"supervisor": SUPERVISOR, "guard": guard.__name__, "shim": "shim.py"}


class Watch:
    """What is shown of launches, beside what their processes are."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._turned: dict[int, float] = {}
        self._over: dict[str, float] = {}
        self._stopped: dict[int, float] = {}
        self.kept: dict[str, bytes] = {}
        """Lines of observations that launches had kept, by identity."""
        self.longest: dict[str, float] = defaultdict(float)

    def look_at_folders(self) -> None:
        """Once at every launch, as commands see it."""
        for folder in list_folders(self._site.host.folder / "home/launches"):
            self._look_at(folder)

    def look_at_service(self) -> None:
        """Once at all launches, as programs see them."""
        for launch in self._site.request("launches", "GET", "/v1/launches?limit=50")["launches"]:
            launch_id, is_heard = launch["launch_id"], launch["silent_s"] is None
            if launch["state"] == "running" and is_heard:
                self._hold(launch_id, launch["supervisor_pid"], "the service shows")
            if not is_heard and any(job["proven"] for job in launch["jobs"]):
                self._site.fault(f"the service says proven of {launch_id}, which is silent")

    def _look_at(self, folder: LaunchFolder) -> None:
        now_s = time.monotonic()
        before = alive(self._pid(folder))
        status = folder.read_status()
        if before and before not in "TZ":
            self._turned[self._pid(folder)] = now_s
        if status.state == "running" and status.silent_s is None:
            self._hold(folder.launch_id, status.supervisor_pid, "its folder shows")
        if status.silent_s is not None and any(job.proven for job in status.jobs):
            self._site.fault(f"{folder.launch_id} is silent, and a job of it proven")
        self._hold_guard(folder, before, now_s)
        for line in observation_lines(folder):
            self.kept[from_row(Observation, json_row(line)).point_id] = line
        if status.over and folder.launch_id not in self._over:
            self._over[folder.launch_id] = now_s
        if status.over and self._over[folder.launch_id] > 0:
            self._hold_gone(folder, now_s - self._over[folder.launch_id])

    def _pid(self, folder: LaunchFolder) -> int:
        return folder.read_status().supervisor_pid or 0

    def _hold(self, launch_id: str, pid: int | None, who: str) -> None:
        """A launch that is shown as running has a supervisor that could run a moment ago."""
        turned_s = self._turned.setdefault(pid or 0, time.monotonic())
        for_s = time.monotonic() - turned_s
        self.longest["shown as running though its supervisor stood still"] = max(
            for_s, self.longest["shown as running though its supervisor stood still"]
        )
        if for_s > SILENT_S + SLACK_S:
            self._site.fault(f"{who} {launch_id} as running, {for_s:.1f} s after its last turn")

    def _hold_guard(self, folder: LaunchFolder, state: str, now_s: float) -> None:
        """A supervisor does not stand still for long beside a guard that could do something."""
        pid = self._pid(folder)
        guards = [p for p, kind in watchers(folder).items() if kind == "guard"]
        works = any(alive(pid) not in "TZ" for pid in guards)
        if state != "T" or not works:
            self._stopped.pop(pid, None)
            return
        for_s = now_s - self._stopped.setdefault(pid, now_s)
        name = "supervisor stood still beside a guard at work"
        self.longest[name] = max(self.longest[name], for_s)
        if for_s > guard.SILENCE_S + guard.CONTINUE_S + SLACK_S:
            self._site.fault(f"the supervisor of {folder.launch_id} stands still for {for_s:.1f} s")
            self._stopped[pid] = now_s

    def _hold_gone(self, folder: LaunchFolder, for_s: float) -> None:
        left = with_variable(f"ADVISOR_LAUNCH={folder.path}".encode())
        if not left:
            self._over[folder.launch_id] = 0
            return
        name = "somebody lived on after the end of a launch"
        self.longest[name] = max(self.longest[name], for_s)
        if for_s > GONE_S + SLACK_S:
            self._site.fault(f"of {folder.launch_id}, over for {for_s:.1f} s, there are {left}")
            self._over[folder.launch_id] = 0


def watchers(folder: LaunchFolder) -> dict[int, str]:
    """Supervisor, guard and shims of a launch, by number."""
    supervisor = folder.read_status().supervisor_pid or 0
    if not folder.supervised():
        return {}
    commands = {pid: words_of(pid) for pid in (supervisor, *children_of(supervisor))}
    return {
        pid: kind
        for pid, command in commands.items()
        for kind, word in KINDS.items()
        if word in command
    }


def strike_service(site: Site, service: Service) -> None:
    """Kill or stop the service now and then, until it is over."""
    chance = site.chance("service")
    while not site.over.wait(chance.uniform(*SERVICE_EVERY_S)):
        stops, later_s = chance.random() < 0.5, _later_s(chance)
        site.counts[f"service: {_named(stops, later_s)}"] += 1
        service.stop(later_s and later_s / 2) if stops else service.kill()


def strike_launches(site: Site) -> None:
    """Kill or stop one of those who watch every few seconds, until it is over."""
    chance = site.chance("strike")
    while not site.over.wait(chance.uniform(*EVERY_S)):
        kind, stops, later_s = chance.choice([*KINDS]), chance.random() < 0.5, _later_s(chance)
        running = [
            pid
            for folder in list_folders(site.host.folder / "home/launches")
            if not folder.read_status().over
            for pid, of in watchers(folder).items()
            if of == kind
        ]
        if not running:
            continue
        pid = chance.choice(running)
        site.counts[f"{kind}: {_named(stops, later_s)}"] += 1
        _send(pid, signal.SIGSTOP if stops else signal.SIGKILL)
        if stops and later_s is not None:
            threading.Timer(later_s, _send, (pid, signal.SIGCONT)).start()


def _later_s(chance: random.Random) -> float | None:
    return None if chance.random() < NEVER else chance.uniform(1, 20)


def _named(stops: bool, later_s: float | None) -> str:
    return "SIGKILL" if not stops else "SIGSTOP for good" if later_s is None else "SIGSTOP"


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def main() -> None:
    """Run it, and say what came."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="adv") as name,
        tempfile.TemporaryDirectory() as library,
    ):
        fake_host.build_cuda(Path(library))
        fake_nvml.build(Path(library))
        site = Site(_host(Path(name), Path(library)), asked.seed)
        site.tokens = make_tokens(site.host, "mixed")
        service, watch = Service(site), Watch(site)
        undisturbed(site)
        before = runtime_files(site)
        try:
            run(site, service, watch, asked.seconds)
            settle(site, watch)
        finally:
            service.end()
        at_the_end(site, watch, before)
        report(site, watch)
    sys.exit(bool(site.faults))


def _host(folder: Path, libraries: Path) -> FakeHost:
    host = FakeHost(folder, libraries)
    (folder / "home").mkdir()
    for gpu in ("gpu0", "gpu1"):
        (folder / "nvml" / gpu).mkdir(parents=True)
        (folder / "nvml" / gpu / "name").write_text("NVIDIA H200")
    (folder / "nvml" / "gpu_count").write_text("2")
    for job in ("one", "two", "third", "gemm"):
        host.write_job(job)
    host.write_job("short", "--steps", "800")
    return host


def run(site: Site, service: Service, watch: Watch, seconds: float) -> None:
    """The load and the kills, for so long."""
    loads = [threading.Thread(target=requests, args=(site, str(n))) for n in range(CLIENTS)]
    loads += [threading.Thread(target=launches, args=(site, gpu)) for gpu in range(len(GPUS))]
    loads += [
        threading.Thread(target=strike_service, args=(site, service)),
        threading.Thread(target=strike_launches, args=(site,)),
        threading.Thread(target=_until_over, args=(site, watch.look_at_folders)),
        threading.Thread(target=_until_over, args=(site, watch.look_at_service)),
    ]
    site.begun_s = time.monotonic()
    for thread in loads:
        thread.start()
    time.sleep(seconds)
    site.over.set()
    for thread in loads:
        thread.join()


def _until_over(site: Site, look: Callable[[], None]) -> None:
    while not site.over.wait(LOOK_S):
        look()


def settle(site: Site, watch: Watch) -> None:
    """Stop what still runs, as a person does, and let one launch run on each GPU."""
    for folder in list_folders(site.host.folder / "home/launches"):
        if not folder.read_status().over:
            site.advisor("launches", "stop", folder.launch_id)
    undisturbed(site)
    watch.look_at_folders()
    # The service brings in what was kept last.
    time.sleep(3)


def undisturbed(site: Site) -> None:
    """A launch on each GPU that nobody disturbs ends well."""
    for gpu in GPUS:
        done = site.advisor(
            "launch", "one", "two", "--split", "26/50", "--gpu", gpu, "--duration", "5"
        )
        if done.returncode:
            site.fault(f"an undisturbed launch on {gpu} failed: {done.stderr[-500:]}")


def at_the_end(site: Site, watch: Watch, before: set[str]) -> None:
    """What is left, and what is stored."""
    home = site.host.folder / "home"
    with open_store(None, home) as store:
        stored = {one.point_id: one for one in store.observations()}
    powers = {one.launch_id: one.power_w for one in stored.values()}
    lost = [name for name, power_w in site.posted.items() if powers.get(name) != power_w]
    if lost:
        site.fault(f"{len(lost)} observations that the service took are not stored: {lost[:5]}")
    gone = [line for point_id, line in watch.kept.items() if point_id not in stored]
    if gone:
        site.fault(f"{len(gone)} observations of launches are not stored: {gone[:3]}")
    stretches = Counter((one.launch_id, one.stretch) for one in stored.values())
    if twice := [one for one, count in stretches.items() if count > 1]:
        site.fault(f"stretches are stored twice: {twice}")
    folders = {folder.launch_id: folder for folder in list_folders(home / "launches")}
    if open_ones := [
        n for n in site.launched if n not in folders or not folders[n].read_status().over
    ]:
        site.fault(f"accepted launches that are not over: {open_ones}")
    mark = f"ADVISOR_RUNTIME_DIR={site.host.folder}/".encode()
    if not wait_until(lambda: not with_variable(mark), 10):
        site.fault(f"processes are left: {with_variable(mark)}")
    for gpu in GPUS:
        if left := left_cgroups(cgroup_prefix(gpu, str(site.host.folder / "run"))):
            site.fault(f"control groups are left: {left}")
    if held := [path for path in (site.host.folder / "locks").rglob("*") if _is_held(path)]:
        site.fault(f"locks are held: {held}")
    if more := runtime_files(site) - before:
        site.fault(f"files of the runtime folder are left: {sorted(more)}")
    for database in home.glob("*.db"):
        [(whole,)] = sqlite3.connect(database).execute("PRAGMA integrity_check").fetchall()
        site.counts[f"integrity of {database.name}: {whole}"] += 1
        if whole != "ok":
            site.fault(f"{database.name}: {whole}")


def _is_held(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def runtime_files(site: Site) -> set[str]:
    """What is in the runtime folder, but for what the fake driver knows of its clients."""
    folder = site.host.folder / "run"
    found = (path.relative_to(folder) for path in folder.rglob("*"))
    return {str(path) for path in found if path.parent.name != "clients"}


def report(site: Site, watch: Watch) -> None:
    """Tables of what was asked, done and seen."""
    print(
        "| request | answers | tried again | undisturbed, ms: p50 | p99 | all: p50 | p99 | most s |"
    )
    print("| --- | --: | --: | --: | --: | --: | --: | --: |")
    for what in sorted({one.what for one in site.asked}):
        mine = [one for one in site.asked if one.what == what]
        calm = [o for o in mine if not site.is_away(o.begun_s, o.begun_s + o.took_s)]
        again = sum(one.tries > 1 for one in mine)
        longest_s = max(one.took_s for one in mine)
        cells = (*_cuts_ms(calm), *_cuts_ms(mine))
        print(f"| {what} | {len(mine)} | {again} | {' | '.join(cells)} | {longest_s:.1f} |")
    print("\n| what | times |\n| --- | --: |")
    for name, count in sorted(site.counts.items()):
        print(f"| {name} | {count} |")
    print(f"| observations that the service took | {len(site.posted)} |")
    print(f"| observations of launches | {len(watch.kept)} |")
    print(f"| launches accepted | {len(site.launched)} |")
    print("\n| longest | s |\n| --- | --: |")
    for name, for_s in sorted(watch.longest.items()):
        print(f"| {name} | {for_s:.1f} |")
    print(f"\n{len(site.faults)} broken" + "".join(f"\n- {text}" for text in site.faults))


def _cuts_ms(asked: list[Asked]) -> tuple[str, str]:
    if len(asked) < 2:
        return "-", "-"
    cuts = statistics.quantiles((1000 * one.took_s for one in asked), n=100, method="inclusive")
    return f"{cuts[49]:.1f}", f"{cuts[98]:.0f}"


if __name__ == "__main__":
    main()
