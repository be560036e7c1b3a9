"""How near answers come to tables that others measured and published, beside rules of one line.

No answer was learned from them, and all but few are of other GPUs. Where GPU busy alone is known,
the part of the time in which a kernel runs, `GAPS` makes SM activity of it. Values are for each 1
of a job alone, on the whole GPU and at its full power limit. A learner is judged on the half of the
families of jobs that it has not seen, in either place of a pair.
"""

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from advisor.core.gpu import TIME_SLICED, UNCAPPED, WHOLE, Split, without_limits
from advisor.core.wording import listed
from advisor.errors import InputError
from advisor.predict.kernels import Kernels
from advisor.predict.one_window import SoloWindow
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import COLUMNS, Floats, Profile, Serving
from advisor.predict.sets import ROUND_ROBIN, SERVER_HOLD_S, SetPredictor
from advisor_data.bundled import bundled_table
from advisor_models.one_window import bundled_one_window

SHIPPED = "advisor"
"""Who says what the package answers, in `Judged.said`."""

PARTS = 7  # into which MIG cuts an A100
GAPS = 1 / ROUND_ROBIN.gaps

Learner = Callable[[Floats, Floats, Floats], Floats]
"""Says values of what is asked from features and values of what was seen."""

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a table comes from.

    Attributes:
        files: SHA-256 of each that is read from a clone; none: the table is bundled.
        lacks: What the answers would need, and the table or the package has not.
    """

    repository: str
    commit: str
    lacks: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Judged:
    """What a table has of one thing on one GPU model, and what is said of it.

    Attributes:
        said: By who says it.
        seen: What a learner is told; shape (values, features).
        families: Of the job and of the one beside it; shape (values, 2).
        bar_percent: Error that a learner of the same kind reached, all families but one seen.
    """

    gpu: str
    what: str
    measured: Floats
    said: Mapping[str, Floats]
    seen: Floats | None = None
    families: Any = None
    learner: Learner | None = None
    bar_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Off:
    """Means of errors: of what was measured, the same with its sign, and in hundredths of 1."""

    percent: float
    bias_percent: float
    points: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFigures:
    """What came of one thing that a table judges.

    Attributes:
        values: How many were measured.
        off: By who says it: `SHIPPED`, where it answers such a question, and rules.
        learned: A model trained on half of the families, on the other half.
        bar_percent: As in `Judged`.
    """

    table: str
    gpu: str
    what: str
    values: int
    off: Mapping[str, Off]
    learned: Off | None
    bar_percent: float | None

    @property
    def rules(self) -> Mapping[str, Off]:
        """Errors of the rules alone."""
        return {name: off for name, off in self.off.items() if name != SHIPPED}


def evaluate_public(names: Sequence[str], folder: Path | None) -> Iterator[PublicFigures]:
    """Figures of each table of that name; of none named of all there are.

    Args:
        names: Of `SOURCES`.
        folder: Has clones of the repositories of tables that are not bundled; None: there is none.

    Raises:
        InputError: no such table, no clone of it, or a file that is not the one of its commit.
    """
    known = [name for name, source in SOURCES.items() if folder or not source.files]
    if unknown := [name for name in names if name not in SOURCES]:
        raise InputError(f"no public table is called {unknown[0]}", fix=f"name {listed(SOURCES)}")
    for name in names or known:
        source = SOURCES[name]
        files = tuple(_file(folder, source, path) for path in source.files)
        for judged in _TABLES[name](*files):
            yield PublicFigures(
                table=name,
                gpu=judged.gpu,
                what=judged.what,
                values=len(judged.measured),
                off={who: _off(said, judged.measured) for who, said in judged.said.items()},
                learned=_off(_other_half(judged), judged.measured) if judged.learner else None,
                bar_percent=judged.bar_percent,
            )


def _file(folder: Path | None, source: Source, path: str) -> str:
    """The text of a file of a clone.

    Raises:
        InputError: it is not there, or is another one.
    """
    clone = source.repository.partition("/")[2]
    steps = (
        f"git clone https://github.com/{source.repository} DIR/{clone}",
        f"git -C DIR/{clone} checkout {source.commit}",
        "advisor evaluate --public --from DIR",
    )
    if folder is None:
        why = f"{source.repository} may not be passed on"
        raise InputError(f"the table of {clone} does not come with advisor", why=why, steps=steps)
    file = folder / clone / path
    with InputError.instead_of(OSError, f"{file} cannot be read"):
        data = file.read_bytes()
    if (found := sha256(data).hexdigest()) != source.files[path]:
        why = (
            f"its SHA-256 begins with {found[:16]}, that of the file with {source.files[path][:16]}"
        )
        raise InputError(f"{file} is not that of {source.commit}", why=why, steps=steps)
    return data.decode()


def _off(said: Floats, measured: Floats) -> Off:
    off, points = 100 * (said / measured - 1), 100 * np.abs(said - measured)
    return Off(float(np.abs(off).mean()), float(off.mean()), float(points.mean()))


def _other_half(judged: Judged) -> Floats:
    """What the learner says of each, having seen no job of the half that its job belongs to."""
    assert judged.learner
    assert judged.seen is not None
    first = np.unique(judged.families)[::2]
    is_first, said = np.isin(judged.families, first), np.empty(len(judged.measured))
    for half in (is_first, ~is_first):
        known, asked = half.all(axis=1), ~half[:, 0]
        said[asked] = judged.learner(judged.seen[known], judged.measured[known], judged.seen[asked])
    return said


def _trees(seen: Floats, values: Floats, asked: Floats) -> Floats:
    trees: Any = ExtraTreesRegressor(random_state=0)
    return np.exp(trees.fit(seen, np.log(values)).predict(asked))


def _linear(seen: Floats, values: Floats, asked: Floats) -> Floats:
    """Least squares of logarithms; a weight that nothing seen asks for is 0."""
    rows, ask = (np.column_stack([np.ones(len(part)), part]) for part in (seen, asked))
    return np.exp(ask @ np.linalg.lstsq(rows, np.log(values), rcond=1e-6)[0])


def _constants(form: Callable[[Floats, float, float], Floats]) -> Learner:
    """A form of a floor in watts and an exponent, by the nearest of those on a grid."""

    def learner(seen: Floats, values: Floats, asked: Floats) -> Floats:
        floors, powers = np.arange(0, 400, 5.0), np.arange(1, 31) / 20
        tried = ((form(seen, floor_w, power), floor_w, power) for floor_w in floors
                 for power in powers)  # fmt: skip
        offs = ((float(np.abs(said / values - 1).mean()), *of) for said, *of in tried)
        return form(asked, *min(offs)[1:])

    return learner


def _family(job: str) -> str:
    """The network, without its size."""
    return re.match(r"[A-Za-z]*", job)[0].lower()  # pyright: ignore[reportOptionalSubscript]


def _families(jobs: Iterable[tuple[str, str]]) -> Any:
    return np.array([[_family(one), _family(other)] for one, other in jobs])


def _job(active: float, share: float = WHOLE) -> Profile:
    """A job that does 1 a second alone, at its limit or without."""
    shares = np.array(sorted({share, WHOLE}))
    values = dict.fromkeys(COLUMNS, np.full(len(shares), np.nan))
    values |= dict.fromkeys(("rate", "power_w"), np.ones(len(shares)))
    values["sm_active_percent"] = WHOLE * active * np.ones(len(shares))
    profile = partial(Profile, job="", gpu_model="", rate_unit="", idle_power_w=0.0)
    return profile(shares=shares, values=values)


def _only_busy(busy: float, gpu_model: str) -> Profile:
    """A job of which GPU busy alone was read."""
    return replace(_job(math.nan), busy=busy, gpu_model=gpu_model)


RTX_3090 = "NVIDIA GeForce RTX 3090"


def _one_by_one(busy: float, p99_ms: float) -> Profile:
    """A server that answers one request at a time, so that its gaps are between requests."""
    demand = Serving(offered_rate=1.0, rate_noise=None, latency_p99_ms=((WHOLE, p99_ms),))
    known = partial(Kernels, per_unit_stderr=0.0, hold_stderr_s=0.0, source="guessed")
    kernels = known(per_unit=busy / SERVER_HOLD_S, hold_s=SERVER_HOLD_S)
    return replace(_job(busy), serving=demand, kernels=kernels)


def _said(jobs: Sequence[Profile], split: Split) -> Prediction:
    return SetPredictor().predict(jobs, [split])[0]


def _speeds(jobs: Sequence[Profile], split: Split) -> list[float]:
    return [part.speed.value for part in _said(jobs, split).parts]


def _of_parvagpu() -> Iterator[Judged]:
    """Activity is what a model does for each 1 that the GPU does at its best slice."""
    rates: dict[tuple[str, int], dict[tuple[int, int], float]] = defaultdict(dict)
    for row in bundled_table("parvagpu"):
        of = rates[row["model"], int(row["batch"])]
        of[int(row["slice"]), int(row["copies"])] = float(row["rate"])
    rows = list[tuple[float, ...]]()
    models = list[str]()
    for (model, batch), own in rates.items():
        best = max(rate * PARTS / part for (part, n), rate in own.items() if n == 1)
        for (part, n), rate in own.items():
            if part == PARTS and n > 1 and (whole := own.get((PARTS, 1))):
                active = whole / best
                said = _speeds([_job(active)] * n, without_limits("uncapped", n))[0]
                rows.append((rate / whole, said, n, active, batch))
                models.append(model)
    kept, said, n, active, batch = np.array(rows).T
    seen = [np.log(np.minimum(n, 1 / active)), np.log(n), 1 / n, np.log(batch)]
    yield Judged(
        gpu="A100",
        what="rate of 2 to 5 copies",
        measured=kept,
        said={SHIPPED: said, "N times one": np.ones(len(kept)), "no gain": 1 / n},
        seen=np.column_stack(seen),
        families=_families(zip(models, models, strict=True)),
        learner=_linear,
        bar_percent=3.7,
    )


def _of_gavel() -> Iterator[Judged]:
    """Nothing is known of a job, so it is taken to fill the GPU."""
    rates: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in bundled_table("gavel"):
        rates[row["gpu"]][row["job"], row["beside"]] = float(row["rate"])
    bars = {"v100": (16.8, 11.0), "p100": (16.2, 12.3), "k80": (16.2, 5.6)}
    half = _speeds([_job(math.nan)] * 2, UNCAPPED)[0]

    @cache
    def gains(job: str) -> tuple[float, float]:
        k80, p100, v100 = (math.log(rates[gpu][job, ""]) for gpu in ("k80", "p100", "v100"))
        return p100 - k80, v100 - p100

    for gpu, bar in bars.items():
        pairs = [pair for pair in rates[gpu] if pair[1]]
        kept = np.array([rates[gpu][pair] / rates[gpu][pair[0], ""] for pair in pairs])
        ones = np.ones(len(pairs))
        judged = partial(
            Judged,
            gpu=gpu.upper(),
            measured=kept,
            said={SHIPPED: half * ones, "no loss": ones, "half each": ones / 2},
        )
        yield judged(
            what="rate beside another",
            seen=np.array([[*gains(one), *gains(other)] for one, other in pairs]),
            families=_families(pairs),
            learner=_trees,
            bar_percent=bar[0],
        )
        jobs = sorted({one for one, _ in pairs})
        places = [[one == job for job in jobs] + [other == job for job in jobs]
                  for one, other in pairs]  # fmt: skip
        names = np.array([" + ".join(sorted(pair)) for pair in pairs])
        yield judged(
            what="the same, jobs seen beside others",
            seen=np.array(places, dtype=np.float64),
            families=np.column_stack([names, names]),
            learner=_linear,
            bar_percent=bar[1],
        )


MISO_LIMIT_W, MISO_IDLE_W = 250.0, 36.0
"""Of an A100-PCIE-40GB by its data sheet, as the most that a job draws there is 247 W; and what it
draws with the job of MISO that does nothing."""


def _of_miso() -> Iterator[Judged]:
    """What is said is what an audit estimates of one window on the whole GPU."""
    steps: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for row in bundled_table("miso"):
        steps[row["job"], row["batch"]][int(row["slice"])] = row
    rows, jobs = list[tuple[float, ...]](), list[str]()
    for (job, _), own in steps.items():
        whole = own[PARTS]
        read = {name: float(whole[name]) for name in ("gpu_busy_percent", "memory_busy_percent")}
        window = SoloWindow(
            job=job,
            gpu_model="NVIDIA A100-PCIE-40GB",
            units_total=None,
            power_w=float(whole["power_w"]),
            power_limit_w=MISO_LIMIT_W,
            clock_part=1.0,
            idle_power_w=MISO_IDLE_W,
            memory_used_mib=None,
            counters=read,
        )
        profile = bundled_one_window().profile(window)
        for part in sorted(own.keys() - {PARTS}):
            kept = float(whole["step_s"]) / float(own[part]["step_s"])
            said = float(profile.at([WHOLE * part / PARTS], "rate")["rate"][0])
            rows.append((kept, said, part / PARTS, *(v / WHOLE for v in read.values()),
                         window.part_of_power))  # fmt: skip
            jobs.append(job)
    table, families = np.array(rows), _families(zip(jobs, jobs, strict=True))
    for what, bar, of in (
        ("speed on 1 to 4 of 7 slices", 17.1, table[:, 2] > 0),
        ("the same, 3 and 4 of 7", 7.4, table[:, 2] > 2 / PARTS),
    ):
        kept, said, part, busy, *_ = table[of].T
        yield Judged(
            gpu="A100",
            what=what,
            measured=kept,
            said={
                SHIPPED: said,
                "no loss": np.ones(len(kept)),
                "the slice": part,
                "min(1, slice / GPU busy)": np.minimum(1, part / busy),
            },
            seen=table[of, 2:],
            families=families[of],
            learner=_trees,
            bar_percent=bar,
        )


def _speed_at(seen: Floats, floor_w: float, power: float) -> Floats:
    """Speed under a limit; features are the limit and what is drawn without one, W."""
    limit_w, drawn_w = seen.T
    above = np.maximum(limit_w - floor_w, 1.0) / np.maximum(drawn_w - floor_w, 1.0)
    return np.minimum(1.0, above) ** power


def _of_zeus() -> Iterator[Judged]:
    """The run at the highest limit is the one without."""
    jobs: dict[tuple[str, ...], dict[float, Row]] = defaultdict(dict)
    for row in bundled_table("zeus"):
        job = tuple(row[key] for key in ("gpu", "network", "dataset", "batch", "optimizer"))
        jobs[job][float(row["limit_w"])] = row
    for gpu, bar in {"v100": 5.0, "a40": 7.2, "p100": 2.9, "rtx6000": 5.5}.items():
        rows, networks = list[tuple[float, ...]](), list[str]()
        for (of, network, *_), own in jobs.items():
            free = own[max(own)]
            for limit_w in sorted(own.keys() - {max(own)} if of == gpu else ()):
                kept = float(free["epoch_s"]) / float(own[limit_w]["epoch_s"])
                rows.append((kept, limit_w, float(free["power_w"])))
                networks.append(network)
        kept, limit_w, drawn_w = np.array(rows).T
        yield Judged(
            gpu=gpu.upper(),
            what="speed under a power limit",
            measured=kept,
            said={
                "no loss": np.ones(len(kept)),
                "min(1, limit / W)": np.minimum(1, limit_w / drawn_w),
            },
            seen=np.column_stack([limit_w, drawn_w]),
            families=_families(zip(networks, networks, strict=True)),
            learner=_constants(_speed_at),
            bar_percent=bar,
        )


def _of_igniter(config: str) -> Iterator[Judged]:
    """Limits add up to the GPU, and 20 to 80 % are measured alone."""
    known: dict[str, dict[str, Any]] = defaultdict(dict)
    for line in config.splitlines():
        for model, readings in json.loads(line).items():
            known[model] |= readings
    rows, models = list[tuple[float, ...]](), list[tuple[str, str]]()
    for one, other, batch, beside, limit, *took_ms in known["interference"]["latency"]:
        pair, alone_ms, active = list[Profile](), list[float](), list[float]()
        split = Split((float(limit), WHOLE - limit))
        for model, size, share in zip((one, other), (batch, beside), split.shares, strict=True):
            own_ms = {float(at): ms for at, ms in known[model]["latency"][str(size)].items()}
            best = max(1 / (at * ms) for at, ms in own_ms.items() if 20 <= at <= 80)
            alone_ms.append(own_ms[share])
            active.append(1 / (WHOLE * own_ms[share] * best))
            pair.append(_job(active[-1], share))
        for n, speed in enumerate(_speeds(pair, split)):
            rows.append((alone_ms[n] / took_ms[n], speed, active[n], active[1 - n]))
            models.append((one, other) if n == 0 else (other, one))
    kept, said, *seen = np.array(rows).T
    yield Judged(
        gpu="V100",
        what="rate of each of two, at limits",
        measured=kept,
        said={SHIPPED: said, "no loss": np.ones(len(kept))},
        seen=np.column_stack(seen),
        families=_families(models),
        learner=_linear,
        bar_percent=3.1,
    )


def _of_lucid(alone: str, together: str) -> Iterator[Judged]:
    keys = "model", "dataset", "batchsize", "amp"
    busy = {tuple(row[key] for key in keys): float(row["gpu_util"]) / 100 for row in _rows(alone)}
    rows, models = list[tuple[float, ...]](), list[tuple[str, str]]()
    for row in _rows(together):
        own, other = (busy[tuple(row[f"{key}{n}"] for key in keys)] for n in (1, 2))
        one, two = _speeds([_only_busy(own, RTX_3090), _only_busy(other, RTX_3090)], TIME_SLICED)
        rows += (float(row["speed1"]), one, own, other), (float(row["speed2"]), two, other, own)
        models += (row["model1"], row["model2"]), (row["model2"], row["model1"])
    kept, said, own, other = np.array(rows).T
    ones, rule = np.ones(len(kept)), np.minimum(1, 1 / (own + other))
    yield Judged(
        gpu="RTX 3090",
        what="rate of each of two, time-sliced",
        measured=kept,
        said={SHIPPED: said, "no loss": ones, "half each": ones / 2, "min(1, 1 / (u + v))": rule},
        seen=np.column_stack([own, other, own * other, rule]),
        families=_families(models),
        learner=_linear,
        bar_percent=7.7,
    )


def _rows(text: str) -> list[dict[str, str]]:
    return [*csv.DictReader(text.splitlines())]


def _of_tally(alone: str, together: str) -> Iterator[Judged]:
    """Half of a server's capacity is asked of it."""
    busy = {row["exp_key"]: float(row["gpu_util"]) / 100 for row in _rows(alone)}
    # A pair has a row for each setting of Tally.
    pairs = {(r["high_priority_job"], r["best_effort_job"]): r for r in _rows(together)}
    for way, split in (("mps", UNCAPPED), ("time_slicing", TIME_SLICED)):
        found = list[tuple[float, ...]]()
        for (server, training), row in pairs.items():
            alone_ms = float(row["high_priority_orig_99th_latency"])
            told = _said(
                (_one_by_one(busy[server], alone_ms), _only_busy(busy[training], "NVIDIA A100")),
                split,
            )
            tail = told.parts[0].latency_p99_ms
            assert tail
            came_ms = float(row[f"high_priority_{way}_99th_latency"])
            kept = (float(row[f"{of}_{way}_throughput"]) for of in ("best_effort", "high_priority"))
            said = told.parts[1].speed.value, told.parts[0].speed.value, tail.value / alone_ms
            found.append((*kept, came_ms / alone_ms, *said))
        columns, ones = np.array(found).T, np.ones(len(found))
        named = "MPS" if way == "mps" else "time-sliced"
        for n, what in enumerate(("training beside a server", "server", "its p99")):
            rules = {"no loss": ones, "half each": ones / 2}
            rules = {"as alone": ones, "twice as alone": 2 * ones} if n == 2 else rules
            yield Judged(
                gpu="A100",
                what=f"{what}, {named}",
                measured=columns[n],
                said={SHIPPED: columns[n + 3], **rules},
            )


def _watts_at(seen: Floats, floor_w: float, power: float) -> Floats:
    """Part of the watts of the largest batch; features are the batch over that one, and these."""
    part, most_w = seen.T
    return (floor_w + np.maximum(most_w - floor_w, 0.0) * part**power) / most_w


def _of_ml_energy(text: str) -> Iterator[Judged]:
    engines: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for engine in json.loads(text)["configurations"]:
        if engine["num_gpus"] == 1:
            engines[engine["gpu_model"], engine["nickname"]].append(engine)
    for gpu, bar in {"H100": 4.0, "B200": 15.5}.items():
        rows, models = list[tuple[float, ...]](), list[str]()
        for (of, model), own in engines.items():
            most = max(own, key=lambda engine: engine["max_num_seqs"])
            for engine in own if of == gpu else ():
                if engine is not most:
                    most_w = most["avg_power_watts"]
                    part = engine["max_num_seqs"] / most["max_num_seqs"]
                    rows.append((engine["avg_power_watts"] / most_w, part, most_w))
                    models.append(model)
        kept, part, most_w = np.array(rows).T
        yield Judged(
            gpu=gpu,
            what="watts of an engine at a batch",
            measured=kept,
            said={"as at the largest": np.ones(len(kept)), "in proportion": part},
            seen=np.column_stack([part, most_w]),
            families=_families(zip(models, models, strict=True)),
            learner=_constants(_watts_at),
            bar_percent=bar,
        )


_TABLES: Mapping[str, Callable[..., Iterator[Judged]]] = {
    "parvagpu": _of_parvagpu,
    "gavel": _of_gavel,
    "miso": _of_miso,
    "zeus": _of_zeus,
    "igniter": _of_igniter,
    "lucid": _of_lucid,
    "tally": _of_tally,
    "ml.energy": _of_ml_energy,
}

SOURCES: Mapping[str, Source] = {
    "parvagpu": Source(
        "MunQ-Lee/ParvaGPU_SC24", "5f3de1e18582b4c81896a1c3eb0e2915238dfee6", "kernels, watts", {}
    ),
    "gavel": Source(
        "stanford-futuredata/gavel",
        "c4fa40097339e9608ab71fd64c8bdea96a5e4a4c",
        "any reading of a job: each is taken to fill the GPU",
        {},
    ),
    "miso": Source(
        "boringlee24/socc22-miso",
        "39b1ee69d73c876c2d2bfca7858806890b27c834",
        "SM and DRAM activity, PCIe traffic; slices have a part of the memory, too",
        {},
    ),
    "zeus": Source(
        "ml-energy/zeus",
        "75a8b9398034eb9baf74ca0a830c2c31bcce52cd",
        "advisor does not answer what another power limit does",
        {},
    ),
    "igniter": Source(
        "icloud-ecnu/igniter",
        "b1ff2ab2624bb8ae856fc133871afa8a93c84d59",
        "kernels, watts",
        {
            "i-Gniter/Profile/tools/gpulet.config": (
                "7e70e2861f18e2885ac55ade492e8162f250e4684ba9ff0c2dcc7a94b315df49"
            )
        },
    ),
    "lucid": Source(
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
    "tally": Source(
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
    "ml.energy": Source(
        "ml-energy/leaderboard",
        "0cd52dab897c5d91a45f4d413038f3b8b4251b0f",
        "advisor does not answer what a larger batch of one engine does",
        {
            "public/data/tasks/lm-arena-chat.json": (
                "24e25d46cdd6a9d9d58f8de63928d6f42601f9966d22e4d7a478e5f11f89a7ec"
            )
        },
    ),
}
"""By the name of the table, bundled ones first."""
