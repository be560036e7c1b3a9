"""What must hold in `mixed_kills.py`: what is shown of launches, and what is left and stored."""

import fcntl
import sqlite3
import time
from collections import Counter
from pathlib import Path

from mixed_kills_site import GPUS, Site, alive, with_variable, words_of

from advisor.core.observations import Observation
from advisor.formats.rows import from_row, json_row
from advisor.launch.records.folder import LaunchFolder, list_folders
from advisor.launch.records.observed import observation_lines
from advisor.launch.records.status import SILENT_S
from advisor.launch.supervisor import guard
from advisor.runtime.host.cgroup import cgroup_prefix, left_cgroups
from advisor.runtime.host.processes import children_of, wait_until
from advisor_data import open_store
from advisor_profiling import SUPERVISOR

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

    def look_at_folders(self) -> None:
        """Once at every launch, as commands see it."""
        _forget_ended(self._site.host.folder)
        for folder in list_folders(self._site.host.folder / "home/launches"):
            self._look_at(folder)

    def look_at_service(self) -> None:
        """Once at all launches, as programs see them."""
        asked_s = time.monotonic()
        for launch in self._site.request("launches", "GET", "/v1/launches?limit=50")["launches"]:
            launch_id, is_heard = launch["launch_id"], launch["silent_s"] is None
            if launch["state"] == "running" and is_heard:
                # It may have waited for a service that stood, and be of any moment since then.
                pid = launch["supervisor_pid"]
                turns = (alive(pid) or "Z") not in "TZ"
                for_s = 0.0 if turns else asked_s - self._turned.get(pid, asked_s)
                self._hold(launch_id, for_s, "the service shows")
            if not is_heard and any(job["proven"] for job in launch["jobs"]):
                self._site.fault(f"the service says proven of {launch_id}, which is silent")

    def _look_at(self, folder: LaunchFolder) -> None:
        now_s = time.monotonic()
        before = alive(self._pid(folder))
        status = folder.read_status()
        if before and before not in "TZ":
            self._turned[self._pid(folder)] = now_s
        if status.state == "running" and status.silent_s is None:
            turned_s = self._turned.setdefault(status.supervisor_pid or 0, now_s)
            self._hold(folder.launch_id, now_s - turned_s, "its folder shows")
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

    def _hold(self, launch_id: str, for_s: float, who: str) -> None:
        """A launch that is shown as running has a supervisor that could run a moment ago."""
        self._site.note("shown as running though its supervisor stood still", for_s)
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
        self._site.note("supervisor stood still beside a guard at work", for_s)
        if for_s > guard.SILENCE_S + guard.CONTINUE_S + SLACK_S:
            self._site.fault(f"the supervisor of {folder.launch_id} stands still for {for_s:.1f} s")
            self._stopped[pid] = now_s

    def _hold_gone(self, folder: LaunchFolder, for_s: float) -> None:
        left = with_variable(f"ADVISOR_LAUNCH={folder.path}".encode())
        if not left:
            self._over[folder.launch_id] = 0
            return
        self._site.note("somebody lived on after the end of a launch", for_s)
        if for_s > GONE_S + SLACK_S:
            self._site.fault(f"of {folder.launch_id}, over for {for_s:.1f} s, there are {left}")
            self._over[folder.launch_id] = 0


def _forget_ended(host: Path) -> None:
    """The fake driver knows processes by number, and a host of many gives these away soon."""
    for file in (*host.glob("nvml/*/contexts/*"), *host.glob("run/*/mps/clients/*")):
        if not alive(int(file.name.partition(".")[0])):
            file.unlink(missing_ok=True)


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
