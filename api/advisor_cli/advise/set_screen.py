"""How a set of jobs is to run, for a person: the first lines, and what is asked for beside them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rich.text import Text

from advisor.core.gpu import vendor_of
from advisor.core.objectives import Prices
from advisor.core.split import Sharing
from advisor.core.wording import counted
from advisor.decide.reasons import percent
from advisor.wire.answers import SetAdvice, Way
from advisor_advice.words import sets as words
from advisor_cli.shared.console import plain_table, print_table
from advisor_cli.shared.screen import Screen, print_list, print_screen


def show(given: SetAdvice, prices: Prices, details: Collection[str] = ()) -> None:
    """Print the first lines, and what is asked for of `how`, `why`, `notes` and `all`."""
    console = print_screen(Screen(words.headline(given), words.lines(given, prices)))
    if "how" in details:
        print_list(console, "how", " ", list(_how(given)))
    if "why" in details:
        print_list(console, "why", "-", list(words.reasons(given)))
    if "notes" in details:
        print_list(console, "notes", "!", given.warnings)
    if "all" in details:
        console.print(Text("best of each way: energy and GPU hours saved", style="bold"))
        print_table(plain_table(_HEADINGS, map(_cells, given.ways)))


def _how(given: SetAdvice) -> Iterator[str]:
    if (way := given.chosen) is None:
        yield "start each job on a GPU of its own"
        return
    seats = ((share.job, share.environment) for share in way.jobs)
    yield from how(words.launch_command(way), way.sharing, given.gpu_model, seats)


def how(
    command: str, sharing: Sharing, gpu_model: str, jobs: Iterable[tuple[str, Mapping[str, str]]]
) -> Iterator[str]:
    """What to copy into the shells that start jobs, each with the variables of its limit."""
    yield f"{command}   # or by hand:"
    if sharing == "time-sliced":
        yield "# no MPS daemon may run for this GPU: they would be its clients"
    elif vendor_of(gpu_model) == "nvidia":
        yield "nvidia-cuda-mps-control -d            # once, as the user of all jobs"
    else:
        yield "# all with ROCR_VISIBLE_DEVICES set to the GPU that they share, or none is limited"
    free: list[str] = []
    for job, environment in jobs:
        for name, value in environment.items():
            yield f"export {name}={value:<4} # in the shell that starts {job}"
        if not environment:
            free.append(job)
    if free:
        yield f"# no variable for {counted(free)}; each job in a shell of its own"


_HEADINGS = ("way", "W", "saved: off", "idle", "hours", "slowest", "p99 ms", "")


def _cells(way: Way) -> Sequence[str]:
    tails = [share.latency_p99_ms.value for share in way.jobs if share.latency_p99_ms]
    saved = way.energy_saved, way.energy_saved_idle, way.gpu_time_saved
    exclusive = way.sharing == "exclusive"
    slowest = 1.0 if exclusive else min(share.speed.value for share in way.jobs)
    return (
        words.limits_of(way) if way.sharing == "limited" else way.name,
        f"{way.power_w.value:.0f}",
        *(percent(round(part.value, 2) or 0.0) for part in saved),
        percent(slowest),
        f"{max(tails):.3g}" if tails and not exclusive else "-",
        "not kept" if way.violations else "",
    )
