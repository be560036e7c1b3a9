"""What the recommended way and simpler ones take for the same work, as lines of text."""

from collections.abc import Iterator

from advisor.core.finish import Finish
from advisor.core.gpu import Vendor
from advisor.core.units import vendor_of
from advisor.core.wording import energy_text
from advisor.decide.recommend import Decision, RatedSplit
from advisor.decide.same_work import WorkToTheEnd, same_work
from advisor.formats.moments import duration_text
from advisor.predict.rules import MEANINGS

_UNCAPPED: dict[Vendor, str] = {"nvidia": "MPS without a percentage", "amd": "without CU masks"}


def same_work_lines(r: Decision) -> Iterator[str]:
    """A heading, and a line for each way."""
    found = same_work(r)
    of_jobs = zip(found.work.alone_s, r.profiles, strict=True)
    work = " and ".join(f"{duration_text(alone_s)} of {p.job}" for alone_s, p in of_jobs)
    yield f"the same work, {work} alone, until both are done"
    for name, finish, note in _rows(r, found):
        yield f"  {name:<24}{_cells(finish, found.choice)}  {note}".rstrip()


def _rows(r: Decision, found: WorkToTheEnd) -> Iterator[tuple[str, Finish | None, str]]:
    yield f"this: {way_name(r.choice)}", found.choice, _note(found)
    if found.restarted:
        yield "  restarted", found.restarted, "the one left over goes on without a limit"
    said = {r.choice.name}
    # "one after the other" is said by its name alone.
    rules = {**MEANINGS, "exclusive": "", "uncapped": _UNCAPPED[vendor_of(r.profiles[0].gpu_model)]}
    for name, finish in found.rules.items():
        option = r.rules[name]
        if option and option.name not in said:
            said.add(option.name)
            notes = (rules[name], "breaks a limit" if option.violations else "")
            yield way_name(option), finish, "; ".join(filter(None, notes))


def way_name(option: RatedSplit) -> str:
    """Shares, or the way in words."""
    return {"exclusive": "one after the other", "uncapped": "no limits"}.get(
        option.name, option.name
    )


def _note(found: WorkToTheEnd) -> str:
    left_s = found.choice.time_s - found.choice.shared_s
    if not found.choice.shared_s or left_s < 1e-6 * found.choice.time_s:
        return ""
    return f"one has ended after {duration_text(found.choice.shared_s)}; the other's limit stays"


def _cells(finish: Finish | None, this: Finish) -> str:
    if finish is None:
        return f"{'not measured':>38}"
    more = ["" if finish is this else _over(finish.energy_j, this.energy_j)]
    more += ["" if finish is this else _over(finish.time_s, this.time_s)]
    energy, time = energy_text(finish.energy_j), duration_text(finish.time_s)
    return f"{energy:>9} {more[0]:>7}  {time:>11} {more[1]:>7}"


def _over(value: float, this: float) -> str:
    change = 100 * (value / this - 1) if this else 0.0
    return f"{change:+.1f} %" if abs(change) >= 0.05 else "same"
