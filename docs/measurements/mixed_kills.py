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
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakes"))

import fake_nvml
import host as fake_host
from host import FakeHost
from launch_server import make_tokens
from mixed_kills_load import launches, requests
from mixed_kills_site import GPUS, Asked, Service, Site
from mixed_kills_watch import KINDS, Watch, at_the_end, runtime_files, watchers

from advisor.launch.folder import list_folders

CLIENTS, LOOK_S = 4, 0.5
EVERY_S, SERVICE_EVERY_S = (1.0, 4.0), (5.0, 30.0)
PAUSE_S = 32.0
NEVER = 0.25
"""Of those that are stopped so many are continued by nobody here."""


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
        elif stops and kind == "supervisor" and chance.random() < 0.5:
            # Its guard has the time that it needs to find that.
            site.over.wait(PAUSE_S)


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
    threading.excepthook = lambda of: site.fault(f"{of.thread}: {of.exc_value!r}")
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
            site.command("launches", "stop", folder.launch_id)
    undisturbed(site)
    watch.look_at_folders()
    # The service brings in what was kept last.
    time.sleep(3)


def undisturbed(site: Site) -> None:
    """A launch on each GPU that nobody disturbs ends well."""
    for gpu in GPUS:
        done = site.command(
            "launch", "one", "two", "--split", "26/50", "--gpu", gpu, "--duration", "5"
        )
        if done.returncode:
            site.fault(f"an undisturbed launch on {gpu} failed: {done.stderr[-500:]}")


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
    for name, for_s in sorted(site.longest_s.items()):
        print(f"| {name} | {for_s:.1f} |")
    print(f"\n{len(site.faults)} broken" + "".join(f"\n- {text}" for text in site.faults))


def _cuts_ms(asked: list[Asked]) -> tuple[str, str]:
    if len(asked) < 2:
        return "-", "-"
    cuts = statistics.quantiles((1000 * one.took_s for one in asked), n=100, method="inclusive")
    return f"{cuts[49]:.1f}", f"{cuts[98]:.0f}"


if __name__ == "__main__":
    main()
