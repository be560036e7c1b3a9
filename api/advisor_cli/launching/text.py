"""A launch for a person: where it stands, and the prediction next to what is observed."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group
from rich.text import Text

from advisor.core.interval import Interval
from advisor.core.wording import less_or_more, listed
from advisor.launch.status import JobStatus, LaunchStatus
from advisor_cli.shared.console import plain_table

_COLUMNS = ("", "share", "units", "memory", "state", "now", "predicted", "off", "speed", "progress")
_OVER = tuple("mean" if name == "now" else name for name in _COLUMNS)

_SPARE = ("units", "memory")
"""Columns that a narrow screen does without: of a number that is cut off nobody sees that it is."""


def table(status: LaunchStatus, width: int) -> Group:
    """Everything on one screen of so many characters; where names are too long they wrap."""
    columns = list(zip(_OVER if status.over else _COLUMNS, *_rows(status), strict=True))
    if sum(max(map(len, column)) + 2 for column in columns) - 2 > width:
        columns = [column for column in columns if column[0] not in _SPARE]
    names, *rows = zip(*columns, strict=True)
    shown = plain_table(names, rows, whole=names[1:])
    return Group(Text(_head(status), style="bold"), shown, *map(Text, _tail(status)))


def unread_text(unread: str | None, unread_since: str | None, stalled_since: str | None) -> str:
    """What is not known of a job, or that it makes no progress; empty: neither."""
    if unread is not None:
        return f"not known since {(unread_since or '')[11:19]}: {unread}"
    return f"stalled: no progress since {stalled_since[11:19]}" if stalled_since else ""


def line(status: LaunchStatus) -> str:
    """The same in one line."""
    jobs = " | ".join(_job(job) for job in status.jobs)
    power = f" | {status.power_w:.0f} W" if status.power_w is not None else ""
    saved = status.energy_saved
    work = f", {less_or_more(saved)} energy" if saved is not None else ""
    cause = f" | {status.code}: {status.cause}" if status.code else ""
    return f"{_head(status)} | {jobs}{power}{work}{cause}"


def summary(status: LaunchStatus, observed: Iterable[dict[str, Any]]) -> Iterator[str]:
    """What is left to say at the end."""
    for pair in observed:
        values = (pair["energy_j"], "J"), (pair["power_w"], "W")
        known = [_number(value, unit) for value, unit in values if value is not None]
        together = f"{pair['overlap_s']:.1f} s together"
        yield f"{' + '.join(job['job'] for job in pair['jobs'])}: {', '.join([together, *known])}"
        yield from _whose(pair)
        yield from _saved(pair)
        rates = [(f"rate of {j['job']}", j["rate"], j["predicted_rate"]) for j in pair["jobs"]]
        power = "power", pair["power_w"], pair["predicted_power_w"]
        for name, seen, predicted in (*rates, power):
            if predicted and seen is not None:
                yield f"  {name}: {seen / predicted - 1:+.1%} against the prediction"
        if pair["stranded_unit_s"]:
            stranded = pair["stranded_unit_s"]
            yield f"  {stranded:.0f} unit-seconds were held for jobs that had ended"
    for job in status.jobs:
        if job.error:
            yield f"{job.job} {job.outcome}: {job.error}"


def _whose(pair: dict[str, Any]) -> Iterator[str]:
    """The part of the energy that is each job's; older launches know nothing of it."""
    for job in pair["jobs"]:
        if (energy_j := job.get("energy_j")) is None or not pair["overlap_s"]:
            continue
        low_j, high_j = (_number(job[f"energy_{end}_j"], "") for end in ("low", "high"))
        yield (
            f"  of that {job['job']}, estimated: {_number(energy_j, 'J')} ({low_j} to {high_j}), "
            f"{_number(energy_j / pair['overlap_s'], 'W')}"
        )


def _saved(pair: dict[str, Any]) -> Iterator[str]:
    """Energy for the same work, observed next to predicted; older launches know nothing of it."""
    if (text := _less(pair, "energy_saved")) is not None:
        yield f"  energy for the same work, against one after the other: {text}"
    if not pair.get("rest_s"):
        return
    went_on = listed(job["job"] for job in pair["jobs"] if not job["ended_first"])
    energy = "" if pair["rest_energy_j"] is None else f" with {_number(pair['rest_energy_j'], 'J')}"
    rest = _less(pair, "rest_energy_saved")
    cost = f"; energy for that work, against the whole GPU: {rest}" if rest else ""
    yield f"  then {went_on} went on for {pair['rest_s']:.1f} s{energy}{cost}"
    if (whole := pair.get("energy_saved_to_end")) is not None:
        yield f"  energy for all of the work, to the end: {less_or_more(whole)}"


def _less(pair: dict[str, Any], name: str) -> str | None:
    if (observed := pair.get(name)) is None:
        return None
    predicted = pair.get(f"predicted_{name}")
    beside = "" if predicted is None else f" ({less_or_more(predicted)} was predicted)"
    return less_or_more(observed) + beside


def _head(status: LaunchStatus) -> str:
    pair = f", pair {status.pair_number + 1} of {status.pairs}" if status.pairs > 1 else ""
    gpu = f" on {status.gpu_model}" if status.gpu_model else ""
    overlap = f", {status.overlap_s:.0f} s together" if status.overlap_s else ""
    return f"{status.launch_id} {status.standing}{gpu}{pair}{overlap}"


def _rows(status: LaunchStatus) -> Iterator[tuple[str, ...]]:
    for job in status.jobs:
        speed = "" if (own := job.speed) is None else f"{100 * own:.0f} %"
        units = "" if job.units_granted is None else str(job.units_granted)
        share, progress = f"{job.share_percent:g} %", f"{job.steps:,.0f}"
        # Of one that is over its mean, which is what was predicted.
        rate = job.mean_rate if job.rate is None else job.rate
        beside = _beside(rate, job.predicted_rate, f"{job.rate_unit}/s")
        yield job.job, share, units, _memory(job), job.outcome, *beside, speed, progress
    yield "power", "", "", "", "", *_beside(status.watts, status.predicted_power_w, "W"), "", ""
    # A difference: how far off it is in percent of itself says nothing.
    saved = _percent(_predicted_saved(status))
    own = _percent(status.part_saved)
    yield "energy saved", "", "", "", "", own, saved, "", "", ""


def _memory(job: JobStatus) -> str:
    """At how much it is bounded; only what was started has a limit, or none."""
    if job.units_granted is None and job.memory_limit_mib is None:
        return ""
    return "no limit" if job.memory_limit_mib is None else f"{job.memory_limit_mib:,} MiB"


def _predicted_saved(status: LaunchStatus) -> float | None:
    """Of those that began together, as long as nobody has joined."""
    forecast = status.forecast
    if forecast is None or any(job.joined_at for job in status.jobs):
        return None
    return forecast.energy_saved and forecast.energy_saved.value


def moves(status: LaunchStatus) -> Iterator[str]:
    """Who came and who left while others ran, in the order of time; UTC."""
    came = [
        (job.joined_at, f"{job.job} joined with {job.share_percent:g} %") for job in status.jobs
    ]
    # Who was stopped with the launch has not left the others; who was ended for one has a reason.
    left = [
        (job.ended_at, f"{job.job} left: {job.outcome}")
        for job in status.jobs
        if job.outcome != "stopped" or job.error
    ]
    known = [(moment, text) for moment, text in (*came, *left) if moment]
    if status.over and not any(moment for moment, _ in came):
        return
    for moment, text in sorted(known):
        yield f"{moment[11:19]} {text}"


def _beside(now: float | None, predicted: Interval | None, unit: str) -> tuple[str, str, str]:
    off = "" if now is None or not predicted else f"{now / predicted.value - 1:+.0%}"
    return _number(now, unit), _number(predicted and predicted.value, ""), off


def _tail(status: LaunchStatus) -> Iterator[str]:
    if status.energy_j is not None:
        yield f"{status.energy_j:,.0f} J in {status.overlap_s:.0f} s together"
    if status.rest_s:
        energy = "" if status.rest_energy_j is None else f", {status.rest_energy_j:,.0f} J"
        yield f"{status.rest_s:.0f} s of others after the first had ended{energy}"
    if status.stranded_unit_s:
        yield f"{status.stranded_unit_s:,.0f} unit-seconds held for jobs that have ended"
    for job in status.jobs:
        if job.max_p99_ms is not None:
            now = "not known yet" if job.latency_p99_ms is None else f"{job.latency_p99_ms:.3g} ms"
            yield f"p99 of {job.job}: {now}, {job.max_p99_ms:g} ms promised"
    for job in status.jobs:
        if text := unread_text(job.unread, job.unread_since, job.stalled_since):
            yield f"{job.job}: {text}"
    if status.whole_energy_j is not None and status.over:
        starts_j = status.starts_energy_j or 0.0
        yield f"{status.whole_energy_j:,.0f} J in all, {starts_j:,.0f} of them before jobs ran"
    if status.unwatched_s:
        yield f"{status.unwatched_s:.1f} s between two looks at the jobs beyond 2 s"
    if only_set := [job.job for job in status.jobs if job.proof == "set"]:
        yield f"limit of {listed(only_set)}: set, not read back from the job"
    yield from moves(status)
    if status.silent_s is not None:
        yield (
            f"! its supervisor has not been heard of since {status.updated_at[11:19]}: all that "
            "stands here is as of then, and no limit is proven"
        )
    if status.code:
        yield f"{status.code}: {status.cause}"
    yield from (f"! {warning}" for warning in status.warnings)


def _job(job: JobStatus) -> str:
    only_set = " set" if job.proof == "set" else ""
    units = f" ({job.units_granted} units{only_set})" if job.units_granted is not None else ""
    rate = f" {job.rate:.4g} {job.rate_unit}/s" if job.rate is not None else ""
    speed = f" = {100 * job.relative_speed:.0f} %" if job.relative_speed is not None else ""
    joined = f" (joined {job.joined_at[11:19]})" if job.joined_at else ""
    unread = unread_text(job.unread, job.unread_since, job.stalled_since)
    tail = f" ({unread})" if unread else ""
    return f"{job.job} {job.share_percent:g} %{units}{joined} {job.outcome}{rate}{speed}{tail}"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    # Never an exponent where thousands can be read.
    return f"{value:,.0f} {unit}".strip() if value >= 1000 else f"{value:.4g} {unit}".strip()
