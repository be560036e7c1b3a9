"""Plans from YAML files or from command-line options, and back to YAML.

    name: h200-pairs
    measure:
      - among: [bert-train, triad, gemm, fft]
        splits: [nine, uncapped]

docs/colocate.md has every key and word. A fault names its line, its key and what was expected.
"""

import hashlib
import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml

from advisor.errors import InputError
from advisor.files import NAME, RULE
from advisor.formats import yaml_fields as read
from advisor_profiling.campaign.plan import (
    DrawnSets,
    JobSet,
    PairNames,
    Plan,
    PlanEntry,
    SplitRequest,
    check_set_splits,
    no_such_job,
    read_set,
    read_split,
    write_set,
    write_splits,
)

DEFAULT_SPLITS = "nine,uncapped"
"""At which pairs are measured where nobody says otherwise."""

DEFAULT_SET_SPLITS = "uncapped"
"""The same of sets, beside the limits that stand behind their jobs."""


def load_plan(path: Path, jobs: Collection[str]) -> Plan:
    """The plan that a file describes; without `name` it is called as the file.

    Raises:
        InputError: the file cannot be read or describes no plan; the message names line and column.
    """
    root = read.load(path)
    readers: Mapping[str, read.FieldReader] = {
        "name": _name,
        "measure": lambda field: tuple(
            _plan_entry(item, jobs) for item in _items(field, "a list of what to measure")
        ),
        "profiles": read.flag,
    }
    fields = read.whole_record(root, readers, required=("measure",))
    name = fields.get("name", path.stem)
    if not NAME.fullmatch(name):
        raise root.fault(f"{name!r} cannot name a run", fix=f"add a name: {RULE}")
    plan = Plan(name, fields["measure"])
    return replace(plan, profiles=fields.get("profiles", plan.has_sets))


def plan_from_options(
    among: str,
    pairs: str,
    splits: str,
    repeats: int = 1,
    name: str | None = None,
    *,
    sample: int | None = None,
    sets: str = "",
    seed: int | None = None,
) -> Plan:
    """The plan that options of the command line describe.

    Such as "bert-train,triad" or "all" for `among`, "bert-train+triad,gemm+gemm" for `pairs`,
    "a+b+c,a+b@50" or "40" for `sets` and "nine,uncapped" for `splits`. Without a name the run has
    one that the same options always give.

    Raises:
        InputError: there is nothing to measure, or an option cannot be understood.
    """
    every = _flat(read_split(word, "--splits") for word in _words(splits))
    named = tuple(_pair_option(text) for text in _words(pairs))
    jobs = "all" if among.strip() == "all" else _words(among)
    if sets.strip():
        entry = _sets_option(sets, jobs, every, repeats, seed)
        return _named(Plan("", (entry,), profiles=True), name, "sets")
    if not every or not (jobs or named):
        raise InputError(
            f"there is nothing to measure: jobs {among!r}, pairs {pairs!r}, splits {splits!r}",
            fix="give splits, and jobs (all pairs of them) or pairs such as bert-train+triad",
        )
    entries = (
        PlanEntry(among=jobs, splits=every, repeats=repeats, sample=sample),
        PlanEntry(pairs=named, splits=every, repeats=repeats),
    )
    plan = Plan("", tuple(entry for entry in entries if entry.among or entry.pairs))
    return _named(plan, name, "pairs")


def _named(plan: Plan, name: str | None, prefix: str) -> Plan:
    """The plan with that name, or with one that the same plan always gets."""
    if name is None:
        digest = hashlib.sha256(_to_yaml(plan).encode()).hexdigest()
        return replace(plan, name=f"{prefix}-{digest[:8]}")
    return replace(plan, name=run_name(name))


def run_name(name: str) -> str:
    """The name itself.

    Raises:
        InputError: it cannot name a run.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a run", fix=f"use {RULE}")
    return name


def to_yaml(plan: Plan) -> str:
    """The plan as a file that `load_plan` reads."""
    return read.with_schema(_to_yaml(plan))


def _to_yaml(plan: Plan) -> str:
    entries = [_entry_json(entry) for entry in plan.entries]
    content: dict[str, Any] = {"name": plan.name, "measure": entries}
    if plan.profiles != plan.has_sets:
        content["profiles"] = plan.profiles
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)


def _name(field: read.YamlField) -> str:
    name = read.text(field)
    if not NAME.fullmatch(name):
        raise field.expected(RULE)
    return name


def _plan_entry(field: read.YamlField, jobs: Collection[str]) -> PlanEntry:
    readers: Mapping[str, read.FieldReader] = {
        "among": lambda field: _among(field, jobs),
        "pairs": lambda field: tuple(
            _pair(item, jobs) for item in _items(field, "a list of pairs")
        ),
        "sample": read.count,
        "selves": read.flag,
        "sets": lambda field: _sets(field, jobs),
        "seed": read.count,
        "splits": _splits,
        "repeats": read.count,
    }
    values = read.record(field, readers, required=("splits",))
    if "sets" in values:
        return _sets_entry(field, values)
    if "seed" in values:
        raise read.entries(field)["seed"].fault("has a meaning only together with sets")
    if ("among" in values) == ("pairs" in values):
        got = "both" if "pairs" in values else "neither"
        raise field.fault(f"expected among or pairs, got {got}")
    for key in ("sample", "selves"):
        if key in values and "pairs" in values:
            raise read.entries(field)[key].fault("has a meaning only together with among")
    return PlanEntry(**values)


def _sets_entry(field: read.YamlField, values: dict[str, Any]) -> PlanEntry:
    """An entry with `sets`, which are named, or drawn of `among` by `seed`."""
    drawn, keys = isinstance(values["sets"], int), read.entries(field)
    allowed = {"sets", "splits", "repeats", *(("among", "seed") if drawn else ())}
    for key in values.keys() - allowed:
        raise keys[key].fault("has no meaning together with " + ("sets" if drawn else "named sets"))
    check_set_splits(values["splits"], _where(keys["splits"]))
    if drawn:
        values["sets"] = DrawnSets(values["sets"], values.pop("seed", 1))
        values.setdefault("among", "all")
    return PlanEntry(**values)


def _sets(field: read.YamlField, jobs: Collection[str]) -> tuple[JobSet, ...] | int:
    if not field.is_list:
        return read.count(field)
    items = _items(field, "how many sets, or a list of them such as [a+b+c, a+b@50]")
    found = tuple(read_set(read.text(item), _where(item)) for item in items)
    for item, members in zip(items, found, strict=True):
        for member in members:
            _known(member.job, item, jobs)
    return found


def _among(field: read.YamlField, jobs: Collection[str]) -> tuple[str, ...] | Literal["all"]:
    if not field.is_list and read.text(field) == "all":
        return "all"
    items = _items(field, "all, or a list of jobs")
    return tuple(_known(read.text(item), item, jobs) for item in items)


def _pair(field: read.YamlField, jobs: Collection[str]) -> PairNames:
    items = _items(field, "a pair such as [bert-train, triad]")
    if len(items) != 2:
        raise field.fault(f"expected two jobs, got {len(items)}")
    first, second = (_known(read.text(item), item, jobs) for item in items)
    return first, second


def _known(name: str, field: read.YamlField, jobs: Collection[str]) -> str:
    """The name itself; a fault of the field where no job has it."""
    if name not in jobs:
        error = no_such_job(name, jobs)
        raise field.fault(error.what, error.fix)
    return name


def _splits(field: read.YamlField) -> tuple[SplitRequest, ...]:
    items = _items(field, "a list of splits such as [nine, uncapped]")
    return _flat(read_split(read.text(item), _where(item)) for item in items)


def _items(field: read.YamlField, what: str) -> list[read.YamlField]:
    """The entries of a list that is not empty."""
    if not isinstance(field.node, yaml.SequenceNode):
        raise field.expected(what)
    if not field.node.value:
        raise field.fault(f"expected {what}, got an empty one")
    return [read.YamlField(field.path, field.key, node) for node in field.node.value]


def _where(field: read.YamlField) -> str:
    mark = field.node.start_mark
    return f"{field.path}:{mark.line + 1}:{mark.column + 1}: {field.key}"


def _flat(splits: Iterable[tuple[SplitRequest, ...]]) -> tuple[SplitRequest, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(splits)))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _pair_option(text: str) -> PairNames:
    names = [name.strip() for name in text.split("+")]
    if len(names) != 2 or not all(names):
        raise InputError(f"--pairs: expected two jobs such as bert-train+triad, got {text!r}")
    return names[0], names[1]


def _sets_option(
    sets: str,
    among: tuple[str, ...] | Literal["all"],
    splits: tuple[SplitRequest, ...],
    repeats: int,
    seed: int | None,
) -> PlanEntry:
    check_set_splits(splits, "--splits")
    if sets.strip().isdecimal():
        if not (count := int(sets)):
            raise InputError("--sets 0 are none", fix="draw one or more, such as --sets 40")
        drawn = DrawnSets(count, 1 if seed is None else seed)
        return PlanEntry(among=among or "all", sets=drawn, splits=splits, repeats=repeats)
    if among or seed is not None:
        raise InputError(
            "--among and --seed say which sets are drawn",
            fix="give their number, such as --sets 40, or name sets alone",
        )
    named = tuple(read_set(text, "--sets") for text in _words(sets))
    return PlanEntry(sets=named, splits=splits, repeats=repeats)


def _entry_json(entry: PlanEntry) -> dict[str, Any]:
    drawn = entry.sets if isinstance(entry.sets, DrawnSets) else None
    written = {
        "pairs": [list(names) for names in entry.pairs],
        "among": entry.among if entry.among == "all" else list(entry.among),
        "sample": entry.sample,
        "selves": None if entry.selves else False,
        "sets": drawn.count if drawn else [write_set(members) for members in entry.named_sets],
        "seed": drawn and drawn.seed,
        "splits": write_splits(entry.splits),
        "repeats": entry.repeats if entry.repeats > 1 else None,
    }
    return {key: value for key, value in written.items() if value not in (None, [])}
