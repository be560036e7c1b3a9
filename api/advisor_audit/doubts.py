"""What an audit does not know: what the series do not show, and what only a launch would."""

from collections.abc import Iterator, Mapping, Sequence

from advisor.core.wording import count_of
from advisor.predict.sets import MEASURED_ON
from advisor_audit.kinds import SM
from advisor_audit.totals import HOUR_S, AuditTotals

_LEFT_ALONE: Mapping[str, str] = {
    "several GPUs": "of jobs on several GPUs at once are left as they are",
    "shared already": "of GPUs that several jobs held at once are left as they are",
    "too little read": "lack power, memory or any activity, and are left as they are",
}


def not_seen(totals: AuditTotals, mig: int) -> Iterator[str]:
    """What the series do not show; `mig` GPUs are in MIG instances."""
    yield from _not_collected(totals)
    yield from _left_out(totals, mig)
    if totals.survey.groups == {""}:
        yield (
            "no series says whose a job is, so all are taken to be of one owner; where "
            "--within names a label that tells owners apart, strangers do not share"
        )
    strangers = sorted(set(totals.hours.models) - set(MEASURED_ON))
    if strangers:
        yield (
            f"no set was measured on {', '.join(strangers)}: what is said of it is by the law "
            f"of sets of {' and '.join(MEASURED_ON)}"
        )
    yield (
        "host cores, host memory, disks and networks are not looked at; nor is what several "
        "GPUs say to each other"
    )
    yield "of servers the load is seen, not what they could serve, nor how long answers take"


def _not_collected(totals: AuditTotals) -> Iterator[str]:
    if not totals.reads_power:
        yield (
            "no power was read, so nothing can be said of energy, nor of who could share: "
            "collect DCGM_FI_DEV_POWER_USAGE"
        )
    elif SM not in totals.hours.channels:
        yield (
            "SM activity (DCGM_FI_PROF_SM_ACTIVE) is not collected, as dcgm-exporter's default "
            "counters leave it out: it is estimated from power, memory utilisation, PCIe "
            "traffic and clock"
        )


def _left_out(totals: AuditTotals, mig: int) -> Iterator[str]:
    if unseen_s := totals.hours.seconds.get("unseen", 0.0):
        yield f"{unseen_s / HOUR_S:,.0f} GPU hours have no readings, and are in no figure"
    if mig:
        yield f"{count_of(mig, 'GPU')} in MIG instances are left out"
    for why, text in _LEFT_ALONE.items():
        if hours := totals.walked.apart.get(why):
            yield f"{hours:,.0f} GPU hours {text}"


def to_prove(slot_s: float) -> Sequence[str]:
    """What only a launch would show."""
    return (
        "nothing here has run together: speeds, watts and tails of sets are for a launch to prove "
        "(advisor launch says which jobs do not do what was expected)",
        "of many sets those are taken that look best, so expect less than the value, within the "
        "range",
        f"jobs are packed anew every {slot_s / 60:.0f} minutes as they overlapped; a job that runs "
        "does not move, so a scheduler that places each once frees fewer cards",
        "jobs that run longer beside others overlap with more of those that come later; the work "
        "that lags behind is counted, on cards of its own, and not when it is done",
    )
