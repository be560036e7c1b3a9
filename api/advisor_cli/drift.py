"""`advisor drift`: do launched jobs still do what the model in use expects of them?"""

from collections.abc import Iterable, Sequence

from advisor.core.wording import count_of
from advisor.settings import Settings, read_settings
from advisor.wire.observed import CardPower, DriftedJob, DriftReport
from advisor_advice.conditions import checks_of, experience_of, stored_factor
from advisor_cli.console import plain_table, print_table
from advisor_cli.options import AsJson
from advisor_cli.say import as_json_text, say
from advisor_data import open_store
from advisor_data.store.store import is_begun
from advisor_models.registry import Registry

_JOBS = ("job", "quantity", "of expected", "launches", "since", "card", "new since then")
_CARDS = ("card", "draws, against others", "90 %", "jobs alone", "pairs")


def drift(as_json: AsJson = False) -> None:
    """Do launched jobs still do what the model in use expects of them?

    Compares the newest launches with what is expected of them today: which jobs have drifted, what
    each card draws beside others of its model, and whether safe counts are to be checked again.

    Example: advisor drift
    """
    report = _drift_report(read_settings())
    if as_json:
        say(as_json_text(report))
        return
    for line in _lines(report):
        say(line)
    if report.drifts:
        say("")
        print_table(plain_table(_JOBS, map(_job, report.drifts)))
    if report.cards:
        say("")
        print_table(plain_table(_CARDS, map(_card, report.cards)))


def _lines(report: DriftReport) -> Iterable[str]:
    compared = count_of(report.observations, "launched pair")
    yield (
        f"{compared} compared with what the model in use expects"
        if report.observations
        else "there is no launched pair to compare: advisor launch"
    )
    if report.observations and not report.drifts:
        yield "no job has drifted"
    yield from report.outdated_checks


def _job(one: DriftedJob) -> Sequence[str]:
    return (
        one.job,
        one.quantity,
        f"{100 * one.ratio:.0f} %",
        str(one.observations),
        one.since,
        one.gpu_uuid or "",
        ", ".join(one.software),
    )


def _card(one: CardPower) -> Sequence[str]:
    factor = one.power_factor
    return (
        one.gpu_uuid,
        f"{100 * (factor.value - 1):+.1f} %",
        f"{100 * (factor.low - 1):+.1f} to {100 * (factor.high - 1):+.1f} %",
        str(one.references),
        str(one.observations),
    )


def _drift_report(settings: Settings) -> DriftReport:
    """The newest observations against the model in use.

    Raises:
        ModelError: there is no model, or it is damaged.
        StoreError: the store, or what a check found, cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return DriftReport(observations=0, drifts=(), cards=(), outdated_checks=())
    predictor = Registry(settings.home / "models").open_champion()
    with open_store(settings.database_url, settings.home) as store:
        found = experience_of(store, predictor, checks_of(settings), settings.home)
        cards = sorted(
            {(one.observation.gpu_model, one.observation.gpu_uuid) for one in found.expected}
        )
        factors = [stored_factor(model, card, found.expected, store) for model, card in cards]
    return DriftReport(
        observations=len(found.expected),
        drifts=found.drifts,
        cards=tuple(factor.told for factor in factors if factor),
        outdated_checks=tuple(found.outdated.values()),
    )
