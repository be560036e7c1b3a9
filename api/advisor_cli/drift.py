"""`advisor drift`: do launched jobs still do what the model in use expects of them?"""

from collections.abc import Iterable

from advisor.core.wording import count_of
from advisor.settings import Settings, read_settings
from advisor.wire.answers import CardPower, DriftedJob
from advisor_advice.conditions import (
    NOTHING,
    Conditions,
    checks_of,
    experience_of,
    stored_factor,
)
from advisor_cli.console import AsJson, Columns, as_json_text, print_table, say, say_lines, table_of
from advisor_data import is_begun, open_store
from advisor_models.registry import Registry

_JOBS: Columns[DriftedJob] = (
    ("job", lambda one: one.job),
    ("quantity", lambda one: one.quantity),
    ("of expected", lambda one: f"{100 * one.ratio:.0f} %"),
    ("launches", lambda one: one.observations),
    ("since", lambda one: one.since),
    ("card", lambda one: one.gpu_uuid),
    ("new since then", lambda one: ", ".join(one.software)),
)
_CARDS: Columns[CardPower] = (
    ("card", lambda one: one.gpu_uuid),
    ("draws, against others", lambda one: f"{_off(one.power_factor.value)} %"),
    ("90 %", lambda one: f"{_off(one.power_factor.low)} to {_off(one.power_factor.high)} %"),
    ("jobs alone", lambda one: one.references),
    ("pairs", lambda one: one.observations),
)


def _off(factor: float) -> str:
    return f"{100 * (factor - 1):+.1f}"


def drift(as_json: AsJson = False) -> None:
    """Compare what launched jobs do with what the model in use predicts.

    Compares the newest launches with what is expected of them today: which jobs have drifted, what
    each card draws beside others of its model, and whether safe counts are to be checked again.

    Example: advisor drift
    """
    found, cards = _found(read_settings())
    if as_json:
        told = {
            "observations": len(found.expected),
            "drifts": found.drifts,
            "cards": cards,
            "outdated_checks": [*found.outdated.values()],
        }
        say(as_json_text(told))
        return
    say_lines(_lines(found))
    if found.drifts:
        say("")
        print_table(table_of(_JOBS, found.drifts))
    if cards:
        say("")
        print_table(table_of(_CARDS, cards))


def _lines(found: Conditions) -> Iterable[str]:
    compared = count_of(len(found.expected), "launched pair")
    yield (
        f"{compared} compared with what the model in use expects"
        if found.expected
        else "there is no launched pair to compare: advisor launch"
    )
    if found.expected and not found.drifts:
        yield "no job has drifted"
    yield from found.outdated.values()


def _found(settings: Settings) -> tuple[Conditions, list[CardPower]]:
    """What the newest launches say against the model in use, and what their cards draw.

    Raises:
        ModelError: there is no model, or it is damaged.
        StoreError: the store, or what a check found, cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return NOTHING, []
    predictor = Registry(settings.home / "models").open_champion()
    with open_store(settings.database_url, settings.home) as store:
        found = experience_of(store, predictor, checks_of(settings), settings.home)
        cards = sorted(
            {(one.observation.gpu_model, one.observation.gpu_uuid) for one in found.expected}
        )
        factors = [stored_factor(model, card, found.expected, store) for model, card in cards]
    return found, [factor.told for factor in factors if factor]
