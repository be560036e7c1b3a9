"""`advisor drift`: do launched jobs still do what the model in use expects of them?"""

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
    ("job", lambda job: job.job),
    ("quantity", lambda job: job.quantity),
    ("of expected", lambda job: f"{100 * job.ratio:.0f} %"),
    ("launches", lambda job: job.observations),
    ("since", lambda job: job.since),
    ("card", lambda job: job.gpu_uuid),
    ("new since then", lambda job: ", ".join(job.software)),
)
_CARDS: Columns[CardPower] = (
    ("card", lambda card: card.gpu_uuid),
    ("draws, against others", lambda card: f"{_off(card.power_factor.value)} %"),
    ("90 %", lambda card: f"{_off(card.power_factor.low)} to {_off(card.power_factor.high)} %"),
    ("jobs alone", lambda card: card.references),
    ("pairs", lambda card: card.observations),
)


def _off(factor: float) -> str:
    return f"{100 * (factor - 1):+.1f}"


def drift(as_json: AsJson = False) -> None:
    """Compare what launched jobs do with what the model in use predicts.

    Prints the jobs that have drifted, the power of each GPU relative to others of its model, and
    whether to check safe counts again.

    Example: advisor drift
    """
    experience, cards = _experience(read_settings())
    if as_json:
        answer = {
            "observations": len(experience.expected),
            "drifts": experience.drifts,
            "cards": cards,
            "outdated_checks": [*experience.outdated.values()],
        }
        say(as_json_text(answer))
        return
    number = len(experience.expected)
    compared = f"{count_of(number, 'launched pair')} compared with what the model in use expects"
    say(compared if number else "there is no launched pair to compare: advisor launch")
    if number and not experience.drifts:
        say("no job has drifted")
    say_lines(experience.outdated.values())
    if experience.drifts:
        say("")
        print_table(table_of(_JOBS, experience.drifts))
    if cards:
        say("")
        print_table(table_of(_CARDS, cards))


def _experience(settings: Settings) -> tuple[Conditions, list[CardPower]]:
    """What the newest launches say against the model in use, and what their cards draw.

    Raises:
        ModelError: there is no model, or it is damaged.
        StoreError: the store, or what a check found, cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return NOTHING, []
    predictor = Registry(settings.home / "models").open_champion()
    with open_store(settings.database_url, settings.home) as store:
        experience = experience_of(store, predictor, checks_of(settings), settings.home)
        cards = sorted(
            {(e.observation.gpu_model, e.observation.gpu_uuid) for e in experience.expected}
        )
        factors = [stored_factor(model, card, experience.expected, store) for model, card in cards]
    return experience, [factor for factor in factors if factor]
