"""What three older policies choose among given ways; `policy.py --beside CHECKOUT` runs it there.

The code is that of the checkout, of commit bddd4a36: `recommend` of pairs, sets over HTTP, and
`advisor run` on an empty GPU. Profiles are made of a file of solo points, without the columns that
this code does not know; trees of pairs are fitted without their jobs; the law of sets is its own.
"""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np


def _old(name: str) -> Any:
    """A module of the checkout: this one has others of these names, or none."""
    return importlib.import_module(name)


split, limits = _old("advisor.core.split"), _old("advisor.decide.limits")
recommend, ways = _old("advisor.decide.recommend"), _old("advisor.decide.ways")
predict, learners = _old("advisor.predict.sets"), _old("advisor_training.learn.learners")
known, measured = (
    _old("advisor_advice.site.known_profiles"),
    _old("advisor_training.dataset.measured"),
)
run, advice = _old("advisor_advice.filling.advice"), _old("advisor_advice.set_advice")
served, forest = _old("advisor_models.model_predictor"), _old("advisor_models.forest")
NoSplitError = _old("advisor.errors").NoSplitError
EVERY = ways.candidate_ways

Way = Any
"""A `Split` of the checkout."""


def main() -> None:
    """Read questions, and write what each policy chooses and which ways it refuses."""
    asked: dict[str, Any] = json.load(sys.stdin)
    points = [*_points(asked["solo"])]
    for module in (known, measured):
        module.bundled_solo_points = lambda jobs=None: [
            point for point in points if jobs is None or point.job in jobs
        ]
    settings = _old("advisor.settings").read_settings()
    model = _old("advisor_models.registry").Registry(settings.home / "models").open_champion()
    found = measured.read_measured(None, None)
    make_data = _old("advisor_training.dataset.data").make_data
    rows = make_data(found.pairs, found.profiled, found.references).rows
    answers: list[Mapping[str, Any]] = []
    for gpu_model, jobs, given in asked["questions"]:
        of_jobs = known.find_profiles(jobs, settings, gpu_model)
        splits = [split.Split(tuple(shares), sharing) for shares, sharing in given]
        answers.append({name: _plain(*one) for name, *one in _asked(of_jobs, splits, model, rows)})
        print(*jobs, {name: one["choice"] for name, one in answers[-1].items()}, file=sys.stderr)
    json.dump(answers, sys.stdout)


def _points(path: str) -> Iterator[Any]:
    formats, kind = _old("advisor.formats.rows"), _old("advisor.core.records").SoloPoint
    columns = formats.column_types(kind)
    with Path(path).open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            yield formats.from_row(kind, {name: row[name] for name in row if name in columns})


def _plain(choice: Way | None, refused: Sequence[Way]) -> Mapping[str, Any]:
    choice, *plain = [way and (way.shares, way.sharing) for way in (choice, *refused)]
    return {"choice": choice, "refused": plain}


def _asked(
    found: Any, given: Sequence[Way], model: Any, rows: Any
) -> Iterator[tuple[str, Way | None, Sequence[Way]]]:
    filled, _ = advice.with_set_idle_power(found, model.manifest.fill)
    request = recommend.Request(min_gain=_old("advisor.wire.requests").MIN_GAIN)
    law, unsure = predict.SetPredictor(), replace(request, unsure_below=limits.UNSURE_BELOW)
    refused = _refused(filled.profiles, given, law, unsure)
    with mock.patch.object(ways, "candidate_ways", _only(found.profiles, given)):
        choice = None
        with suppress(NoSplitError):
            choice = ways.recommend_set(filled.profiles, law, request).choice
        by_set = choice and choice.prediction.split
        yield "sets", by_set, refused
        yield "run", _run(filled.profiles, request), refused
    if len(found.profiles) > split.ADVISED_JOBS:
        yield "recommend", by_set, refused
        return
    idle, _ = _old("advisor_advice.idle_power").with_idle_power(found, model.manifest.fill)
    trees = predict.AnyWay(_unseen(model, rows, [p.job for p in found.profiles]))
    of_pairs = [way for way in given if way.sharing != "time-sliced"]
    refused = _refused(idle.profiles, of_pairs, trees, request)
    yield "recommend", _recommended(idle.profiles, of_pairs, trees, request), refused


def _refused(
    profiles: Sequence[Any], given: Sequence[Way], predictor: Any, request: Any
) -> Sequence[Way]:
    request, check = limits.with_card_memory(request, profiles[0].gpu_model), recommend.violations
    found = predictor.predict(profiles, given)
    return [one.split for one in found if check(one, profiles, request)]


def _only(whole: Sequence[Any], given: Sequence[Way]) -> Any:
    """Only these ways, and a GPU each, of the whole set; of a part of it all ways."""

    def candidates(profiles: Sequence[Any], *rest: Any) -> Sequence[Way]:
        if not given or len(profiles) < len(whole):
            return EVERY(profiles, *rest)
        seats = _seats([p.job for p in profiles], [p.job for p in whole])
        there = (split.Split(tuple(w.shares[n] for n in seats), w.sharing) for w in given)
        return (split.without_limits("exclusive", len(whole)), *there)

    return candidates


def _seats(jobs: Sequence[str], others: Sequence[str]) -> list[int]:
    """Where each job is among the others: the first copy is the first."""
    left = list(enumerate(others))
    found: list[int] = []
    for job in jobs:
        found.append(next(n for n, other in left if other == job))
        left = [one for one in left if one[0] != found[-1]]
    return found


def _run(profiles: Sequence[Any], request: Any) -> Way | None:
    """The way of all on one GPU; None: some wait, or run elsewhere."""
    names = [profile.job for profile in profiles]
    queue = run.FillAdvice(
        profiles={profile.job: profile for profile in profiles},
        lacking={},
        request=replace(request, objective=_old("advisor.decide.filling").OBJECTIVE),
    )
    jobs, now = queue.first_set(names, 0)
    if len(jobs) < len(names):
        return None
    shares = tuple(now.split.shares[n] for n in _seats(names, jobs))
    return split.Split(shares, now.split.sharing)


def _recommended(
    profiles: Sequence[Any], given: Sequence[Way], predictor: Any, request: Any
) -> Way | None:
    outlook = _old("advisor.decide.outlook").Outlook(profiles, predictor)
    limited = [way for way in given if way.is_limited]
    splits = tuple(sorted(limited, key=lambda way: (way.shares[0], -way.shares[1])))
    outlook.splits = lambda **_: splits
    free = split.UNCAPPED if split.UNCAPPED in given else split.EXCLUSIVE
    with (
        mock.patch.object(recommend, "UNCAPPED", free),
        mock.patch.object(recommend, "_explained", lambda answer, _: answer),
        suppress(NoSplitError),
    ):
        choice = recommend.recommend_by(outlook, request).choice.prediction.split
        return None if choice.sharing == "exclusive" else choice
    return None


def _unseen(model: Any, rows: Any, jobs: Sequence[str]) -> Any:
    """The model in use, but for trees that were fitted without some jobs."""
    kept = rows.take(~np.logical_or.reduce([rows.of(job) for job in jobs]))
    fitted = learners.fit(learners.extra_trees, kept).by_head
    as_bytes = _old("advisor_training.learn.artefact").forest_bytes
    unseen = object.__new__(served.ModelPredictor)
    vars(unseen).update(vars(model))
    unseen._forest = forest.Forest(
        *(
            forest.read_trees(h.name, as_bytes(fitted[h.name].regressor_), len(h.features))
            for h in model.manifest.heads
        )
    )
    return unseen


if __name__ == "__main__":
    main()
