"""How near answers come to tables that others measured and published, beside rules of one line.

Nearly all are of GPUs that nothing was learned from; what was chosen by half of a table is said in
docs/measurements/sets.md. Values are for each 1 of a job alone, on the whole GPU and at its full
power limit. A learner is judged on the half of the families of jobs that it has not seen, in either
place of a pair.
"""

import csv
import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from advisor.core.gpu import TIME_SLICED, UNCAPPED, WHOLE, Split, without_limits
from advisor.core.records import grouped
from advisor.core.wording import listed
from advisor.errors import InputError
from advisor.predict.kernels import Kernels
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import COLUMNS, Floats, Profile, Serving, speed_left
from advisor.predict.sets import SERVER_HOLD_S, SetPredictor
from advisor_data.bundled import bundled_table
from advisor_models.single_window import SoloWindow, bundled_head

SHIPPED = "advisor"  # the package's own answers, in `PublicFigures.off`

_PARTS = 7  # into which MIG cuts an A100

# From features and values of known rows, and features of others, the values of these.
_Learner = Callable[[Floats, Floats, Floats], Floats]


@dataclass(frozen=True, slots=True)
class Off:
    """Means of errors: of what was measured, the same with its sign, and in hundredths of 1.

    Of a p99 the first two are those of the mean factor, up or down.
    """

    percent: float
    bias_percent: float
    points: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFigures:
    """What came of one thing that a table has of a GPU model.

    Attributes:
        values: How many were measured.
        off: By predictor: `SHIPPED`, where it answers such a question, and rules.
        learned: A model trained on half of the families, on the other half.
        bar_percent: Error of such a model that had seen all families but one.
    """

    table: str = ""
    gpu: str
    what: str
    values: int
    off: Mapping[str, Off]
    learned: Off | None
    bar_percent: float | None


@dataclass(frozen=True, slots=True)
class _Table:
    """A table that others published.

    Attributes:
        judge: Takes the texts of `files`.
        lacks: What answers would need, and the table or the package has not.
        files: SHA-256 of each that is read from a clone; none: the table is bundled.
    """

    judge: Callable[..., Iterator[PublicFigures]]
    repository: str
    commit: str
    lacks: str
    files: Mapping[str, str]


def evaluate_public(names: Sequence[str], folder: Path | None) -> Iterator[PublicFigures]:
    """Figures of each table of that name; of none named of all there are.

    Args:
        names: Of `TABLES`.
        folder: Has clones of the repositories of tables that are not bundled; None: there is none.

    Raises:
        InputError: no such table, no clone of it, or a file that is not the one of its commit.
    """
    if unknown := [name for name in names if name not in TABLES]:
        raise InputError(f"no public table is called {unknown[0]}", fix=f"name {listed(TABLES)}")
    for name in names or [name for name, table in TABLES.items() if folder or not table.files]:
        texts = [_file(folder, name, path) for path in TABLES[name].files] or [bundled_table(name)]
        yield from (replace(figures, table=name) for figures in TABLES[name].judge(*texts))


def _file(folder: Path | None, name: str, path: str) -> str:
    """The text of a file of a clone.

    Raises:
        InputError: it is not there, or is another one.
    """
    table = TABLES[name]
    clone = table.repository.partition("/")[2]
    file = (folder or Path("DIR")) / clone / path
    data = file.read_bytes() if folder and file.is_file() else b""
    if (digest := sha256(data).hexdigest()) == (wanted := table.files[path]):
        return data.decode()
    what, why = f"{file} is not there", "a table whose licence does not let others pass it on"
    if data:
        what = f"{file} is not that of {table.commit}"
        why = f"its SHA-256 begins with {digest[:16]}, that of the file with {wanted[:16]}"
    steps = (
        f"git clone https://github.com/{table.repository} DIR/{clone}",
        f"git -C DIR/{clone} checkout {table.commit}",
        f"advisor evaluate --public {name} --from DIR",
    )
    raise InputError(what, why=why, steps=steps)


def _figures(
    gpu: str,
    what: str,
    measured: Floats,
    said: Mapping[str, Floats],
    *,
    features: Sequence[Floats] = (),
    families: Any = None,
    learner: _Learner | None = None,
    bar_percent: float | None = None,
) -> PublicFigures:
    """What came of it.

    Args:
        gpu: Its model.
        what: Is judged; a p99 by the mean factor.
        measured: For each 1 alone, as the following.
        said: By predictor.
        features: Features of the learner.
        families: Of the job and of the one beside it; shape (values, 2).
        learner: None: too few values.
        bar_percent: As in `PublicFigures`.
    """
    learned = (
        _other_half(learner, np.column_stack(features), measured, families) if learner else None
    )
    of = partial(_off, measured, is_factor="p99" in what)
    return PublicFigures(
        gpu=gpu,
        what=what,
        values=len(measured),
        off={who: of(values) for who, values in said.items()},
        learned=None if learned is None else of(learned),
        bar_percent=bar_percent,
    )


def _off(measured: Floats, said: Floats, *, is_factor: bool) -> Off:
    off = np.log(said / measured) if is_factor else said / measured - 1
    means = (float(of.mean()) for of in (np.abs(off), off))
    percent, bias = (100 * (math.expm1(mean) if is_factor else mean) for mean in means)
    return Off(percent, bias, 100 * float(np.abs(said - measured).mean()))


def _other_half(learner: _Learner, features: Floats, measured: Floats, families: Any) -> Floats:
    # What it says of each, having seen no job of the half that its job belongs to.
    is_first = np.isin(families, np.unique(families)[::2])
    said = np.empty(len(measured))
    for half in (is_first, ~is_first):
        learned_from, tested = half.all(axis=1), ~half[:, 0]
        said[tested] = learner(features[learned_from], measured[learned_from], features[tested])
    return said


def _trees(features: Floats, values: Floats, tested: Floats) -> Floats:
    trees: Any = ExtraTreesRegressor(random_state=0)
    return np.exp(trees.fit(features, np.log(values)).predict(tested))


def _linear(features: Floats, values: Floats, tested: Floats) -> Floats:
    # Least squares of logarithms; a weight that nothing seen asks for is 0.
    rows, ask = (np.column_stack([np.ones(len(part)), part]) for part in (features, tested))
    return np.exp(ask @ np.linalg.lstsq(rows, np.log(values), rcond=1e-6)[0])


def _constants(form: Callable[[Floats, float, float], Floats]) -> _Learner:
    # The floor in watts and the exponent with the least error on a grid.

    def learner(features: Floats, values: Floats, tested: Floats) -> Floats:
        grid = itertools.product(np.arange(0, 400, 5.0), np.arange(1, 31) / 20)
        nearest = min(grid, key=lambda of: float(np.abs(form(features, *of) / values - 1).mean()))
        return form(tested, *nearest)

    return learner


def _families(jobs: Iterable[tuple[str, str]]) -> Any:
    # The network of each job of a pair, without its size.
    return np.array([[re.findall("[a-z]*", job.lower())[0] for job in pair] for pair in jobs])


def _job(active: float, share: float = WHOLE, **fields: Any) -> Profile:
    # A job that does 1 a second alone, at its limit or without; SM activity may be unread.
    shares = np.array(sorted({share, WHOLE}))
    values = dict.fromkeys(COLUMNS, np.full(len(shares), np.nan))
    values |= dict.fromkeys(("rate", "power_w"), np.ones(len(shares)))
    values["sm_active_percent"] = WHOLE * active * np.ones(len(shares))
    profile = partial(Profile, job="", gpu_model="", rate_unit="", idle_power_w=0.0)
    return replace(profile(shares=shares, values=values), **fields)


def _said(jobs: Sequence[Profile], split: Split) -> Prediction:
    return SetPredictor().predict(jobs, [split])[0]


def _rows(text: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(text.splitlines())


def _columns(rows: Iterable[tuple[Any, ...]]) -> tuple[Any, list[Floats]]:
    # Families of the two jobs that each row begins with, and its numbers column by column.
    pairs, *numbers = zip(*rows, strict=True)
    return _families(pairs), [np.array(column, dtype=np.float64) for column in numbers]


def _of_parvagpu(text: str) -> Iterator[PublicFigures]:
    # Activity is what a model does for each 1 that the GPU does at its best slice.
    rows = list[tuple[Any, ...]]()
    for (model, batch), its in grouped(_rows(text), lambda r: (r["model"], r["batch"])).items():
        by_part = {(int(r["slice"]), int(r["copies"])): float(r["rate"]) for r in its}
        best = max(rate * _PARTS / part for (part, n), rate in by_part.items() if n == 1)
        for (part, n), rate in by_part.items():
            if part == _PARTS and n > 1 and (whole := by_part.get((_PARTS, 1))):
                said = _said([_job(whole / best)] * n, without_limits("uncapped", n)).parts[0]
                most = min(n, best / whole)
                rows.append(((model,) * 2, rate / whole, said.speed.value, n, most, float(batch)))
    families, (kept, said, n, most, batch) = _columns(rows)
    yield _figures(
        "A100",
        "rate of 2 to 5 copies",
        kept,
        {SHIPPED: said, "N times one": np.ones(len(kept)), "no gain": 1 / n},
        features=[np.log(most), np.log(n), 1 / n, np.log(batch)],
        families=families,
        learner=_linear,
        bar_percent=3.7,
    )


def _of_gavel(text: str) -> Iterator[PublicFigures]:
    # Nothing is known of a job, so it is taken to fill the GPU.
    rates = {
        gpu: {(row["job"], row["beside"]): float(row["rate"]) for row in its}
        for gpu, its in grouped(_rows(text), lambda row: row["gpu"]).items()
    }
    half = _said([_job(math.nan)] * 2, UNCAPPED).parts[0].speed.value
    for gpu, bar, feature_bar in (
        ("v100", 16.8, 11.0),
        ("p100", 16.2, 12.3),
        ("k80", 16.2, 5.6),
    ):
        pairs = [pair for pair in rates[gpu] if pair[1]]
        kept = np.array([rates[gpu][pair] / rates[gpu][pair[0], ""] for pair in pairs])
        unit = np.ones(len(kept))
        said = {SHIPPED: half * unit, "no loss": unit, "half each": unit / 2}
        alone = (
            [math.log(rates[card_name][job, ""]) for card_name in ("k80", "p100", "v100")]
            for pair in pairs
            for job in pair
        )
        yield _figures(
            gpu.upper(),
            "rate beside another",
            kept,
            said,
            features=[*np.diff(np.array([*alone])).reshape(len(pairs), 4).T],
            families=_families(pairs),
            learner=_trees,
            bar_percent=bar,
        )
        jobs = sorted({job for job, _ in pairs})
        names = [" + ".join(sorted(pair)) for pair in pairs]
        yield _figures(
            gpu.upper(),
            "the same, seen beside others",
            kept,
            said,
            features=[
                np.array([pair[at] == job for pair in pairs]) for job in jobs for at in (0, 1)
            ],
            families=np.array([names, names]).T,
            learner=_linear,
            bar_percent=feature_bar,
        )


def _of_miso(text: str) -> Iterator[PublicFigures]:
    # Predicted as an audit does, from one window on the whole GPU.
    rows = list[tuple[Any, ...]]()
    for (job, _), its in grouped(_rows(text), lambda row: (row["job"], row["batch"])).items():
        by_slice = {int(row["slice"]): row for row in its}
        whole = by_slice.pop(_PARTS)
        read = {name: float(whole[name]) for name in ("gpu_busy_percent", "memory_busy_percent")}
        window = SoloWindow(
            job=job,
            gpu_model="NVIDIA A100-PCIE-40GB",
            units_total=None,
            power_w=float(whole["power_w"]),
            # Of its data sheet: the most that a job draws there is 247 W.
            power_limit_w=250.0,
            clock_part=1.0,
            # With a job of MISO that does nothing.
            idle_power_w=36.0,
            memory_used_mib=None,
            counters=read,
        )
        profile = bundled_head().likeliest(window)
        for part, row in by_slice.items():
            kept = float(whole["step_s"]) / float(row["step_s"])
            said = profile.at([WHOLE * part / _PARTS], "rate")["rate"][0]
            numbers = kept, said, part / _PARTS, window.part_of_power, *read.values()
            rows.append(((job, job), *numbers))
    families, columns = _columns(rows)
    for what, bar, least in (
        ("speed on 1 to 4 of 7 slices", 17.1, 1),
        ("the same, 3 and 4 of 7", 7.4, 3),
    ):
        of = columns[2] > (least - 0.5) / _PARTS
        kept, said, *features = (column[of] for column in columns)
        rules = {
            "no loss": np.ones(len(kept)),
            "the slice": features[0],
            "min(1, slice / GPU busy)": np.minimum(1, WHOLE * features[0] / features[2]),
        }
        yield _figures(
            "A100",
            what,
            kept,
            {SHIPPED: said, **rules},
            features=[*features, rules["min(1, slice / GPU busy)"]],
            families=families[of],
            learner=_trees,
            bar_percent=bar,
        )


def _speed_at(features: Floats, floor_w: float, power: float) -> Floats:
    # Speed under a limit; features are the limit and what is drawn without one, W.
    limit_w, drawn_w = features.T
    above = np.maximum(limit_w - floor_w, 1.0) / np.maximum(drawn_w - floor_w, 1.0)
    return np.minimum(1.0, above) ** power


def _of_zeus(text: str) -> Iterator[PublicFigures]:
    # The run at the highest limit is the one without.
    keys = "gpu", "network", "dataset", "batch", "optimizer"
    jobs = {
        job: {float(row["limit_w"]): row for row in its}
        for job, its in grouped(_rows(text), lambda row: tuple(row[key] for key in keys)).items()
    }
    for gpu, bar in (("v100", 5.0), ("a40", 7.2), ("p100", 2.9), ("rtx6000", 5.5)):
        rows = list[tuple[Any, ...]]()
        most_w = max(max(by_limit) for (card, *_), by_limit in jobs.items() if card == gpu)
        for (_, network, *_), by_limit in (item for item in jobs.items() if item[0][0] == gpu):
            free = by_limit.pop(max(by_limit))
            for limit_w, row in by_limit.items():
                kept = float(free["epoch_s"]) / float(row["epoch_s"])
                rows.append(((network, network), kept, limit_w, float(free["power_w"])))
        families, (kept, limit_w, drawn_w) = _columns(rows)
        yield _figures(
            gpu.upper(),
            "speed under a power limit",
            kept,
            {
                SHIPPED: speed_left(limit_w, drawn_w, most_w),
                "no loss": np.ones(len(kept)),
                "min(1, limit / W)": np.minimum(1, limit_w / drawn_w),
            },
            features=[limit_w, drawn_w],
            families=families,
            learner=_constants(_speed_at),
            bar_percent=bar,
        )


def _of_igniter(config: str) -> Iterator[PublicFigures]:
    # Limits add up to the GPU, and 20 to 80 % are measured alone.
    tables: dict[str, dict[str, Any]] = defaultdict(dict)
    for line in config.splitlines():
        for model, readings in json.loads(line).items():
            tables[model] |= readings
    rows = list[tuple[Any, ...]]()
    for first_model, other, batch, beside, limit, *took_ms in tables["interference"]["latency"]:
        split = Split((float(limit), WHOLE - limit))
        both = [
            {float(at): ms for at, ms in tables[model]["latency"][str(size)].items()}
            for model, size in ((first_model, batch), (other, beside))
        ]
        best = [max(1 / (at * ms) for at, ms in of.items() if 20 <= at <= 80) for of in both]
        alone_ms = [of[share] for of, share in zip(both, split.shares, strict=True)]
        active = [1 / (WHOLE * ms * most) for ms, most in zip(alone_ms, best, strict=True)]
        pair = [*map(_job, active, split.shares)]
        for n, said in enumerate(_said(pair, split).parts):
            jobs = (first_model, other) if n == 0 else (other, first_model)
            kept = alone_ms[n] / took_ms[n]
            rows.append((jobs, kept, said.speed.value, active[n], active[1 - n]))
    families, (kept, said, *features) = _columns(rows)
    yield _figures(
        "V100",
        "rate of each of two, at limits",
        kept,
        {SHIPPED: said, "no loss": np.ones(len(kept))},
        features=features,
        families=families,
        learner=_linear,
        bar_percent=3.1,
    )


def _of_lucid(alone: str, together: str) -> Iterator[PublicFigures]:
    # On the card that the simulator of the table names.
    keys = "model", "dataset", "batchsize", "amp"
    busy = {tuple(row[key] for key in keys): float(row["gpu_util"]) / 100 for row in _rows(alone)}
    rows = list[tuple[Any, ...]]()
    for row in _rows(together):
        usage, other = (busy[tuple(row[f"{key}{n}"] for key in keys)] for n in (1, 2))
        pair = [
            _job(math.nan, busy=of, gpu_model="NVIDIA GeForce RTX 3090") for of in (usage, other)
        ]
        first_speed, two = (part.speed.value for part in _said(pair, TIME_SLICED).parts)
        rows += (
            ((row["model1"], row["model2"]), float(row["speed1"]), first_speed, usage, other),
            ((row["model2"], row["model1"]), float(row["speed2"]), two, other, usage),
        )
    families, (kept, said, usage, other) = _columns(rows)
    unit, rule = np.ones(len(kept)), np.minimum(1, 1 / (usage + other))
    yield _figures(
        "RTX 3090",
        "rate of each of two, time-sliced",
        kept,
        {SHIPPED: said, "no loss": unit, "half each": unit / 2, "min(1, 1 / (u + v))": rule},
        features=[usage, other, usage * other, rule],
        families=families,
        learner=_linear,
        bar_percent=7.7,
    )


def _of_tally(alone: str, together: str) -> Iterator[PublicFigures]:
    # A server's demand is half of its capacity.
    busy = {row["exp_key"]: float(row["gpu_util"]) / 100 for row in _rows(alone)}
    # A pair has a row for each setting of Tally.
    pairs = {(r["high_priority_job"], r["best_effort_job"]): r for r in _rows(together)}
    for method, named, split in (
        ("mps", "MPS", UNCAPPED),
        ("time_slicing", "time-sliced", TIME_SLICED),
    ):
        figures = list[tuple[float, ...]]()
        for (server, training), row in pairs.items():
            alone_ms, came_ms = (
                float(row[f"high_priority_{of}_99th_latency"]) for of in ("orig", method)
            )
            # It answers one request at a time, so that its gaps are between requests.
            demand = Serving(offered_rate=1.0, rate_noise=None, latency_p99_ms=((WHOLE, alone_ms),))
            kernels = Kernels(
                per_unit=busy[server] / SERVER_HOLD_S, hold_s=SERVER_HOLD_S, source="guessed"
            )
            pair = (
                _job(busy[server], serving=demand, kernels=kernels),
                _job(math.nan, busy=busy[training]),
            )
            served, trained = _said(pair, split).parts
            tail_ms = served.latency_p99_ms.value if served.latency_p99_ms else math.nan
            kept = (
                float(row[f"{of}_{method}_throughput"]) for of in ("high_priority", "best_effort")
            )
            said = served.speed.value, trained.speed.value, tail_ms / alone_ms
            figures.append((*kept, came_ms / alone_ms, *said))
        columns, unit = [*np.array(figures).T], np.ones(len(figures))
        of_rates = {"no loss": unit, "half each": unit / 2}
        of_p99 = {"as alone": unit, "twice as alone": 2 * unit}
        for n, (what, rules) in enumerate(
            (("server", of_rates), ("training", of_rates), ("p99", of_p99))
        ):
            yield _figures(
                "A100", f"{what}, {named}", columns[n], {SHIPPED: columns[n + 3], **rules}
            )


def _watts_at(features: Floats, floor_w: float, power: float) -> Floats:
    # Part of the watts of the largest batch; features are the batch over that one, and these.
    part, most_w = features.T
    return (floor_w + np.maximum(most_w - floor_w, 0.0) * part**power) / most_w


def _of_ml_energy(text: str) -> Iterator[PublicFigures]:
    # Engines of language models, each on one GPU at several batches.
    on_one = [of for of in json.loads(text)["configurations"] if of["num_gpus"] == 1]
    engines = grouped(on_one, lambda of: (of["gpu_model"], of["nickname"]))
    for gpu, bar in (("H100", 4.0), ("B200", 15.5)):
        rows = list[tuple[Any, ...]]()
        for (_, model), its in (item for item in engines.items() if item[0][0] == gpu):
            readings = [(of["max_num_seqs"], of["avg_power_watts"]) for of in its]
            most, most_w = max(readings)
            rows += [((model,) * 2, w / most_w, n / most, most_w) for n, w in readings if n != most]
        families, (kept, part, most_w) = _columns(rows)
        yield _figures(
            gpu,
            "watts of an engine at a batch",
            kept,
            {"as at the largest": np.ones(len(kept)), "in proportion": part},
            features=[part, most_w],
            families=families,
            learner=_constants(_watts_at),
            bar_percent=bar,
        )


# Bundled ones first.
TABLES: Mapping[str, _Table] = {
    "parvagpu": _Table(
        _of_parvagpu,
        "MunQ-Lee/ParvaGPU_SC24",
        "5f3de1e18582b4c81896a1c3eb0e2915238dfee6",
        "kernels, watts",
        {},
    ),
    "gavel": _Table(
        _of_gavel,
        "stanford-futuredata/gavel",
        "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c",
        "any reading of a job, so each is taken to fill the GPU",
        {},
    ),
    "miso": _Table(
        _of_miso,
        "boringlee24/socc22-miso",
        "39b1ee69d73c876c2d2bfca7858806890b27c834",
        "SM and DRAM activity, PCIe traffic; a slice has a part of the memory, too",
        {},
    ),
    "zeus": _Table(
        _of_zeus,
        "ml-energy/zeus",
        "75a8b9398034eb9baf74ca0a830c2c31bcce52cd",
        "the watts that a card draws at any clock, which are taken as on V100 and A40",
        {},
    ),
    "igniter": _Table(
        _of_igniter,
        "icloud-ecnu/igniter",
        "b1ff2ab2624bb8ae856fc133871afa8a93c84d59",
        "kernels, watts",
        {
            "i-Gniter/Profile/tools/gpulet.config": (
                "7e70e2861f18e2885ac55ade492e8162f250e4684ba9ff0c2dcc7a94b315df49"
            )
        },
    ),
    "lucid": _Table(
        _of_lucid,
        "S-Lab-System-Group/Lucid",
        "63685a3ab7d15d8e940bb47ef98b6d5cca472b13",
        "SM activity, kernels, CPU cores, watts",
        {
            "simulation/analyzer/single_data.csv": (
                "6bce9f9410b9d1529c7bcfca50aa7c7bc9684dff49da8e13414013325f99ed23"
            ),
            "simulation/data/colocate_info.csv": (
                "eb17384138b035112e7118b9fd33ae2ab9040fb4688942c74af59a700425ed0d"
            ),
        },
    ),
    "tally": _Table(
        _of_tally,
        "tally-project/tally-bench",
        "aaa359a006dbaf8776bfa1b4c6071ccd14d86252",
        "SM activity, kernels, watts",
        {
            "tally_results_demo/single-job-perf.csv": (
                "4ff92323abda92304c93cd87272b9f81432de1c6555677090b47846bb8ac9262"
            ),
            "tally_results_demo/priority-aware-perf.csv": (
                "c345fbca5de9f29a6f483ff48722173c8f88f2cdcdceddb8b4ddacd7d0dbb851"
            ),
        },
    ),
    "ml.energy": _Table(
        _of_ml_energy,
        "ml-energy/leaderboard",
        "0cd52dab897c5d91a45f4d413038f3b8b4251b0f",
        "an answer of advisor, which does not say what a larger batch of an engine does",
        {
            "public/data/tasks/lm-arena-chat.json": (
                "24e25d46cdd6a9d9d58f8de63928d6f42601f9966d22e4d7a478e5f11f89a7ec"
            )
        },
    ),
}
