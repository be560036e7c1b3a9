"""Running jobs placed in sets, for a person: cards, what is saved, the bound, who shares."""

from collections.abc import Collection, Iterator

from rich.table import Table
from rich.text import Text

from advisor.core.wording import count_of, less_or_more
from advisor.decide.reasons import percent
from advisor.wire.placement import SeatedSet, SetPlacement
from advisor_advice.words.pair import basis
from advisor_cli.shared.console import plain_table, print_table
from advisor_cli.shared.screen import Screen, print_folded, print_screen

_WIDTH = 110


def show(found: SetPlacement, details: Collection[str] = ()) -> None:
    """Print the first lines, and what is asked for of `pairs`, `schedule` and `notes`."""
    console = print_screen(Screen(_headline(found), _lines(found)))
    if "pairs" in details:
        console.print(Text("who with whom", style="bold"))
        print_table(_sets(found), _WIDTH)
    if "schedule" in details:
        console.print(Text("launches", style="bold"))
        for one in found.sets:
            for gpu in one.gpus:
                how = f"advisor launch {one.launch}" if len(one.jobs) > 1 else f"{one.launch} alone"
                console.print(Text(f"  GPU {gpu:<5} {how}"), soft_wrap=True)
    if "notes" in details:
        console.print(Text("notes", style="bold"))
        for note in _remarks(found):
            print_folded(console, "  ! ", note)


def _headline(found: SetPlacement) -> str:
    pools = ", ".join(f"{pool.used} of {pool.gpus} x {pool.gpu_model}" for pool in found.gpus)
    seen = dict.fromkeys(job.job for one in found.sets for job in one.jobs if job.one_window)
    return (
        f"{count_of(found.seated, 'job')} on {count_of(found.cards, 'card')} ({pools}), "
        f"{found.power_w / 1000:,.4g} kW. {basis(None, seen)}"
    )


def _lines(found: SetPlacement) -> Iterator[tuple[str, str]]:
    if found.waiting:
        waiting = ", ".join(f"{one.count} {one.job}" for one in found.waiting)
        is_full = all(pool.used == pool.gpus for pool in found.gpus)
        off = f"{waiting}: limits, or a profile that is missing, keep them off the free cards"
        yield "Waiting", f"no card is left for {waiting}" if is_full else off
    yield (
        "Against",
        f"a card each, the same work: {less_or_more(found.energy_saved)} energy with free cards "
        f"off, {less_or_more(found.energy_saved_idle)} with them idle, "
        f"{less_or_more(found.gpu_time_saved)} GPU time",
    )
    late = f", and {_number(found.waiting_cost)} for jobs that wait" if found.waiting else ""
    yield (
        "Bound",
        f"{found.objective}: {_own_cost(found)}{late}; no plan has less than "
        f"{_number(found.bound)} (at most {percent(max(found.gap, 0.0), 1)} less"
        f"{'; a longer --time-limit tells more' if found.timed_out else ''})",
    )
    slowest = min((job for one in found.sets for job in one.jobs), key=lambda job: job.speed)
    yield "Slowest", f"{slowest.job}, {percent(slowest.speed)} of its speed alone"
    notes = len([*_remarks(found)])
    yield "More", f"--pairs (who with whom) --schedule (launches) --notes ({notes}) --json"


def _own_cost(found: SetPlacement) -> str:
    """Of jobs that have a card."""
    if found.objective == "fewest-cards":
        return count_of(found.cards, "card")
    unit = "W" if found.objective == "least-energy" else "an hour"
    return f"{_number(found.cost - found.waiting_cost)} {unit} with what jobs lag behind"


def _number(cost: float) -> str:
    """With three digits and more."""
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.4g}"


def _sets(found: SetPlacement) -> Table:
    names = ("cards", "GPU", "jobs, as of advisor launch", "speeds", "p99 ms, at most", "W")
    return plain_table(names, map(_cells, found.sets))


def _cells(one: SeatedSet) -> tuple[str, ...]:
    tails = [f"{job.p99_ms:.3g}" for job in one.jobs if job.p99_ms is not None]
    return (
        str(len(one.gpus)),
        one.gpu_model,
        one.launch,
        " ".join(percent(job.speed) for job in one.jobs),
        " ".join(tails) or "-",
        f"{one.power_w:.0f}",
    )


def _remarks(found: SetPlacement) -> Iterator[str]:
    yield "jobs run together from now on; a queue to its end is planned in pairs: leave --objective"
    yield "savings are predicted, and of many sets those are taken that look best: expect less"
    if found.timed_out:
        yield "the search for sets ended at its time limit: the bound is further away"
    if found.bundled_profiles:
        count = count_of(len(found.bundled_profiles), "bundled profile")
        yield f"{count} of jobs with random input; power depends on it"
    yield from found.warnings
