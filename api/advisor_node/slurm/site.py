"""Slurm as its commands describe it: queue, partitions, nodes, books; and the site's settings."""

import json
import os
import re
import shlex
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from advisor.core.gpu import Share
from advisor.errors import InputError, SourceError
from advisor.wire.requests import NAME

SlurmCommand: TypeAlias = Callable[..., str]
"""Runs a command of Slurm; its words are the arguments, its output what comes back."""

_PATIENCE_S = 30.0


def ask(*command: str) -> str:
    """What a command of Slurm prints.

    Raises:
        SourceError: it is not there, failed, or took too long.
    """
    try:
        done = subprocess.run(
            command,
            # Else the tasks of a long array end in dots.
            env={**os.environ, "SLURM_BITSTR_LEN": "0", "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{command[0]} could not be asked: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[:300]
        raise SourceError(f"{' '.join(command[:3])} failed: {said}")
    return done.stdout


def _rows(text: str, of: str) -> list[Mapping[str, Any]]:
    """The objects in an answer in JSON.

    Raises:
        SourceError: it is no such answer.
    """
    with SourceError.instead_of(
        (ValueError, KeyError, TypeError),
        f"Slurm's answer has no {of}",
        why="",
        fix="look whether `squeue --json` works here: Debian has it in slurm-wlm-basic-plugins",
    ):
        answer = json.loads(text)[of]
    return [row for row in answer if isinstance(row, dict)]


def _number(value: Any) -> float | None:
    """A number, which later versions of Slurm wrap; None: not set, or without an end."""
    if isinstance(value, Mapping):
        wrapped = cast("Mapping[str, Any]", value)
        unset = not wrapped.get("set", True) or wrapped.get("infinite")
        value = None if unset else wrapped.get("number")
    return float(value) if isinstance(value, int | float) else None


def _settings_of(text: str) -> dict[str, str]:
    """`Name = text` of each line of `scontrol show config`."""
    lines = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, mark, value in lines if mark}


def _listed(value: Any) -> list[Any]:
    """What is in a list; nothing of what is none."""
    return list(cast("list[Any]", value)) if isinstance(value, list) else []


_WORD = re.compile(r"(?:^|[\s;])advisor:([^\s;]*)", re.IGNORECASE)
# Keys of the comment: the field, the pattern of its text, and what reads it.
_FIELDS: Mapping[str, tuple[str, str, Callable[[str], object]]] = {
    "job": ("job", NAME, str),
    "with": ("beside", NAME, str),
    "p99": ("max_p99_ms", r"[0-9]{1,9}(?:\.[0-9]{1,9})?", float),
    "speed": ("min_speed", r"(?:0(?:\.[0-9]{1,9})?|1)", float),
    # The driver takes 0, and more than 100, for no limit at all.
    "share": ("share_text", r"[1-9][0-9]?(?:\.[0-9]{1,17})?|100", str),
    "counted": ("counted", r"[1-9][0-9]?|100", int),
    "memory": ("memory_mib", r"[1-9][0-9]{0,8}", int),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a comment says of its job.

    Attributes:
        job: Name of the profiled job.
        beside: Name of the only job that it wants beside it; None: any.
        max_p99_ms: Longest p99 latency; None: no limit.
        min_speed: Minimum relative speed; None: the service's setting.
        share_text: Percent of the SMs, exactly as its tasks have it; None: not decided.
        counted: What Slurm counts of a GPU for it, percent; None: not decided.
        memory_mib: At how much its GPU memory is bounded; None: at nothing.
    """

    job: str
    beside: str | None = None
    max_p99_ms: float | None = None
    min_speed: float | None = None
    share_text: str | None = None
    counted: int | None = None
    memory_mib: int | None = None

    def share(self) -> Share:
        """Its part of a GPU; all of it where nothing is decided."""
        return Share(float(self.share_text or 100), memory_mib=self.memory_mib)

    def text(self) -> str:
        """The word."""
        values = ((key, getattr(self, field)) for key, (field, *_) in _FIELDS.items())
        given = ((key, f"{v:g}" if isinstance(v, float) else v) for key, v in values)
        return "advisor:" + ",".join(f"{key}={v}" for key, v in given if v is not None)

    def in_comment(self, comment: str) -> str:
        """A comment in which this word replaces the one that is there."""
        return _WORD.sub(lambda match: match[0][: -len(match[1]) - 8] + self.text(), comment, 1)

    @classmethod
    def read(cls, text: str) -> "Named | None":
        """What a comment says of its job; None: nothing.

        Raises:
            InputError: a job is named by what is no name.
        """
        if (match := _WORD.search(text)) is None:
            return None
        given: dict[str, Any] = {}
        for word in match[1].split(","):
            key, _, value = word.partition("=")
            field, pattern, read = _FIELDS.get(key, ("", "(?!)", str))
            if field in given or not re.fullmatch(pattern, value):
                raise _no_name(text)
            given[field] = read(value)
        if "job" not in given:
            raise _no_name(text)
        return cls(**given)


def _no_name(text: str) -> InputError:
    return InputError(
        f"the comment {text[:100]!a} names no job",
        fix="write advisor:job=NAME, and ,p99=MS or ,speed=0.6 behind it",
    )


def command_of_script(text: str) -> list[str]:
    """The words of the last program that a batch script runs, as its process has them.

    Variables of the shell stay as they stand.

    Raises:
        InputError: there is none, or its quotes do not end.
    """
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    with InputError.instead_of(
        (ValueError, IndexError), "its script runs nothing that can be told from it"
    ):
        runs = [line for line in lines if re.search(r"^srun\b|\bpython|\.py\b", line)] or lines
        # Without srun, its options and variables, which say how a program is started.
        program = re.sub(
            r"^((srun|exec|time|nohup|[A-Za-z_]\w*=\S*|-[ABCDGJLMNSTWcdeiomnprtwx]\s+\S+|-\S+)\s+)+",
            "",
            runs[-1],
        )
        # Up to where its output goes.
        first, *words = shlex.split(re.split(r"\s*[0-9]?[<>|;&]", program)[0])
    return [first, *words]


WHOLE = 100
"""What Slurm counts for a whole GPU."""

_HELD = (
    "Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "JobArrayTaskLimit",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTask:
    """A job of the queue, or a task of an array.

    Attributes:
        key: Its number; of a task of an array `5_3`.
        named: What its comment says; None: it names no job.
        counted: What it asks of a GPU, percent; None: it asks for no part of one.
        eligible_s: From when it may start, seconds since 1970.
        limit_min: Its time limit; None: it says none.
        where: What it says of nodes; equal texts fit the same.
        needs_node: The node that it was told to start on; empty: none.
        held: It waits for something else than a GPU.
        cards: What it holds, percent of each GPU by node and index.
        workdir: Where its script runs.
    """

    key: str
    user: str
    partition: str
    pending: bool
    comment: str
    named: Named | None
    counted: int | None
    eligible_s: float
    priority: float
    limit_min: float | None
    cpus: int
    where: str
    needs_node: str
    held: bool
    cards: Mapping[tuple[str, int], int]
    workdir: Path = Path("/")

    @property
    def undecided(self) -> bool:
        """Whether its share is not decided yet."""
        return (
            self.pending
            and self.named is not None
            and self.named.share_text is None
            and self.counted == WHOLE
            and not self.held
        )

    @property
    def part(self) -> bool:
        """Whether it was given a part of a GPU."""
        return self.named is not None and (self.named.counted or WHOLE) < WHOLE

    @classmethod
    def queue(cls, ask: SlurmCommand) -> "list[SlurmTask]":
        """All jobs that wait or run; those of highest priority, then the oldest first."""
        jobs = [
            job for row in _rows(ask("squeue", "--json", "--all"), "jobs") for job in _jobs(row)
        ]
        return sorted(
            jobs, key=lambda job: (-job.priority, *map(int, f"{job.key}_0".split("_")[:2]))
        )


def _jobs(row: Mapping[str, Any]) -> Iterator[SlurmTask]:
    state: Any = row.get("job_state")
    states = list(map(str, _listed(state))) or [str(state)]
    if not {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"} & set(states):
        return
    yield from (_job(key, row, pending="PENDING" in states) for key in _keys(row))


def _keys(row: Mapping[str, Any]) -> list[str]:
    array, task = (int(_number(row.get(name)) or 0) for name in ("array_job_id", "job_id"))
    if not array:
        return [str(task)]
    if _number(row.get("array_task_id")) is not None:
        return [f"{array}_{_number(row['array_task_id']):.0f}"]
    tasks = list(_tasks(str(row.get("array_task_string") or "")))
    return [f"{array}_{number}" for number in tasks[:1000]] or [str(task)]


def _tasks(text: str) -> Iterator[int]:
    """Of `1-3,7,10-20:5%2`."""
    for part in text.partition("%")[0].split(","):
        if match := re.fullmatch(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?", part):
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            yield from range(first, last + 1, max(1, step))


def _job(key: str, row: Mapping[str, Any], *, pending: bool) -> SlurmTask:
    comment = str(row.get("comment") or "")
    match = re.fullmatch(r"gres[:/]mps[:=]([0-9]+)", str(row.get("tres_per_node") or ""))
    named = None
    with suppress(InputError):
        named = Named.read(comment)
    return SlurmTask(
        key=key,
        user=str(row.get("user_name") or row.get("user_id")),
        partition=str(row.get("partition")),
        pending=pending,
        comment=comment,
        named=named,
        counted=int(match[1]) if match else None,
        eligible_s=_number(row.get("eligible_time")) or 0.0,
        priority=_number(row.get("priority")) or 0.0,
        limit_min=_number(row.get("time_limit")),
        cpus=int(_number(row.get("cpus")) or 1),
        where=str([row.get(k) for k in ("features", "excluded_nodes", "resv_name", "qos")]),
        needs_node=str(row.get("required_nodes") or ""),
        held=row.get("state_reason") in _HELD or _number(row.get("priority")) == 0,
        cards=_cards(row),
        workdir=Path(str(row.get("current_working_directory") or "/")),
    )


def _cards(row: Mapping[str, Any]) -> Mapping[tuple[str, int], int]:
    """Of `gres_detail`, an item for each node: `mps:30(IDX:0)`, `gpu:h100:2(IDX:0,3-4)`.

    Later versions count the parts by GPU: `mps:30(30/100,0/100)`.
    """
    named = (node_row.get("nodename") or node_row.get("name") for node_row in _allocated(row))
    nodes = [node for node in named if node] or [row.get("nodes")]
    counted_by_card: dict[tuple[str, int], int] = defaultdict(int)
    for node, text in zip(nodes, row.get("gres_detail") or (), strict=False):
        for name, count, indexes in re.findall(
            r"(gpu|mps|shard)(?::[^:(,]+)?:([0-9]+)\(IDX:([0-9,-]+)\)", str(text)
        ):
            for index in _tasks(indexes):
                counted_by_card[str(node), index] += int(count) if name == "mps" else WHOLE
        for parts in re.findall(r"mps(?::[^:(,]+)?:[0-9]+\(([0-9/,]+)\)", str(text)):
            for index, part in enumerate(parts.split(",")):
                if counted := int(part.partition("/")[0] or 0):
                    counted_by_card[str(node), index] += counted
    return dict(counted_by_card)


def _allocated(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    resources: Mapping[str, Any] = row.get("job_resources") or {}
    # 22.05 has a text in `nodes`; later versions have all of them there.
    allocated: Any = resources.get("allocated_nodes")
    if isinstance(nodes := resources.get("nodes"), dict):
        allocated = cast("Mapping[str, Any]", nodes).get("allocation")
    return _listed(allocated)


_LIMITS = ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins", "MaxTRES", "MaxTRESMins")
_WEIGHT = re.compile(r"(gres/(?:gpu(?::[^=,]*)?|mps))=([0-9.]+)", re.IGNORECASE)
_COUNT = re.compile(r"gres/gpu(:[^=,]*|)=([0-9]+)")


def book_faults(ask: SlurmCommand) -> Iterator[str]:
    """Why jobs that share would pass by the books, one after the other; with what to do.

    Raises:
        SourceError: Slurm does not answer.
    """
    if not (config := _settings_of(ask("scontrol", "show", "config"))):
        raise SourceError("`scontrol show config` says nothing")
    if not config.get("AccountingStorageType", "").endswith("slurmdbd"):
        return  # there are no books
    if "gres/mps" not in config.get("AccountingStorageTRES", "").split(","):
        yield "gres/mps is not in AccountingStorageTRES of slurm.conf: add it beside gres/gpu"
    yield from _unweighed(ask("scontrol", "show", "partition", "-o"))
    if "limits" in config.get("AccountingStorageEnforce", ""):
        yield from _unlimited(ask)


def _unweighed(partitions: str) -> Iterator[str]:
    """A GPU that is billed, and its hundredth that is not."""
    for line in partitions.splitlines():
        words = _words(line)
        name, weights = (words.get(key, "") for key in ("PartitionName", "TRESBillingWeights"))
        given = {key.lower(): float(weight) for key, weight in _WEIGHT.findall(weights)}
        # A GPU counts as itself and as one of its type; gres/mps has no types.
        whole = given.get("gres/gpu", 0.0) + max(
            (given[key] for key in given if key.startswith("gres/gpu:")), default=0.0
        )
        part = given.get("gres/mps", 0.0)
        if abs(whole - 100 * part) > 0.01 * whole:
            bills = f"partition {name} bills GRES/gpu={whole:g} and GRES/mps={part:g}"
            yield f"{bills}: write GRES/mps={whole / 100:g}"


def _unlimited(ask: SlurmCommand) -> Iterator[str]:
    """A limit on GPUs that has none on their parts beside it."""
    for kind, key, limits in (
        ("assoc", "Account,User", _LIMITS),
        ("qos", "Name", (*_LIMITS, "MaxTRESPU", "MaxTRESPA")),
    ):
        for line in ask(
            "sacctmgr", "-nP", "show", kind, f"format={key},{','.join(limits)}"
        ).splitlines():
            cells = line.split("|")
            names, values = cells[: -len(limits)], cells[-len(limits) :]
            for limit, value in zip(limits, values, strict=True):
                if (counts := dict(_COUNT.findall(value))) and "gres/mps=" not in value:
                    who = " ".join(name for name in names if name)
                    gpus = int(counts.get("", 0)) or sum(map(int, counts.values()))
                    has = f"{kind} {who} has {limit}={value} without gres/mps"
                    yield f"{has}: add gres/mps={100 * gpus}"


def _words(line: str) -> dict[str, str]:
    """`Name=text` of each word of `scontrol show -o`."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


_SETTING = re.compile(r"\s*([a-z_]+)\s*=\s*(.*?)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """What advisor.conf says.

    Attributes:
        address: Of the service.
        wait_s: How long a job waits for others before it may start alone.
        gpu_model: None: the one that all profiles have in common.
        facts: File with the facts of the site for the plugin.
    """

    address: str
    wait_s: int
    gpu_model: str | None
    facts: Path

    @classmethod
    def read(cls, path: Path) -> "SiteSettings":
        """The settings in a file.

        Raises:
            InputError: it cannot be read, or what it says cannot be meant.
        """
        # setup.sh writes it with the rest.
        with InputError.instead_of(
            OSError, f"{path} cannot be read", fix="install as docs/slurm.md says"
        ):
            lines = path.read_text().splitlines()
        given = {match[1]: match[2] for line in lines if (match := _SETTING.fullmatch(line))}
        for name, pattern in (("address", r"(https?|unix):\S+"), ("wait_s", r"[0-9]{1,6}"),
                              ("facts", r"/\S+")):  # fmt: skip
            if not re.fullmatch(pattern, given.get(name, "")):
                raise InputError(f"{path}: {name} = {given.get(name, '')} is not valid")
        return cls(
            address=given["address"],
            wait_s=int(given["wait_s"]),
            gpu_model=given.get("gpu_model"),
            facts=Path(given["facts"]),
        )

    def write_facts(
        self,
        books: str,
        partitions: "Mapping[str, Partition]",
        nodes: "Sequence[SlurmNode]",
        now_s: float,
    ) -> None:
        """Tell the plugin: a file of lines, complete at any moment."""
        lines = [
            f"written_at = {now_s:.0f}",
            f"user = {os.geteuid()}",
            f"wait_s = {self.wait_s}",
            f"books = {books}",
        ]
        for name, partition in partitions.items():
            lines.append(f"partition.{name} = {_fact(partition, nodes)}")
            lines += [f"default = {name}"] if partition.is_default else []
        new = self.facts.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.chmod(0o644)
        new.replace(self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition.

    Attributes:
        is_default: Jobs that name none go there.
        default_min, most_min: Time limit of jobs that say none, and the longest; None: no limit.
        cpus, memory_mib: What a GPU brings by default; None: nothing.
        nodes: Names.
        single_user: A node serves one user at a time.
    """

    name: str
    is_default: bool
    default_min: float | None
    most_min: float | None
    cpus: int | None
    memory_mib: int | None
    single_user: bool

    @classmethod
    def by_name(cls, ask: SlurmCommand) -> "Mapping[str, Partition]":
        """All partitions, by name."""
        of_all = _settings_of(ask("scontrol", "show", "config")).get("JobDefaults", "")
        lines = ask("scontrol", "show", "partition", "-o").splitlines()
        partitions = (_partition(line, of_all) for line in lines)
        return {partition.name: partition for partition in partitions if partition.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node with so many GPUs; `is_shared` where each is counted as gres/mps of 100 as well.

    Types are those of its GPUs in gres.conf, an empty one of those that have none. `drained` says
    why it takes no jobs; empty: it does.
    """

    name: str
    partitions: tuple[str, ...]
    free_cpus: int
    gpus: int
    is_shared: bool
    types: frozenset[str] = frozenset()
    drained: str = ""

    @classmethod
    def by_name(cls, ask: SlurmCommand) -> "Mapping[str, SlurmNode]":
        """All nodes, by name."""
        try:
            rows = _rows(ask("sinfo", "--json"), "nodes")
        except SourceError:  # later versions list groups of nodes there, and have these in scontrol
            rows = _rows(ask("scontrol", "show", "nodes", "--json"), "nodes")
        return {node.name: node for node in map(_node, rows)}


def _fact(partition: Partition, nodes: Sequence[SlurmNode]) -> str:
    those = [node for node in nodes if partition.name in node.partitions and node.gpus]
    if not those or not all(node.is_shared for node in those):
        return "no GPUs are not counted as mps, 100 for each"
    types = "+".join(
        kind or "none" for kind in sorted({kind for node in those for kind in node.types})
    )
    brings = {"cpus": partition.cpus, "mib": partition.memory_mib, "types": types}
    return " ".join(["ok", *(f"{key}={value}" for key, value in brings.items() if value)])


def _partition(line: str, of_all: str) -> Partition:
    words = _words(line)
    # What a partition says stands behind what is said for all of them, and holds.
    brings = dict(re.findall(r"(Def(?:Cpu|Mem)PerGPU)=([0-9]+)", f"{of_all} {line}"))
    return Partition(
        name=words.get("PartitionName", ""),
        is_default=words.get("Default") == "YES",
        default_min=parse_minutes(words.get("DefaultTime", "")),
        most_min=parse_minutes(words.get("MaxTime", "")),
        cpus=int(brings["DefCpuPerGPU"]) if "DefCpuPerGPU" in brings else None,
        memory_mib=int(brings["DefMemPerGPU"]) if "DefMemPerGPU" in brings else None,
        single_user=words.get("ExclusiveUser") == "YES",
    )


def parse_minutes(text: str) -> float | None:
    """A time limit as Slurm prints it, `days-hours:minutes:seconds`; None: no limit."""
    if not (match := re.fullmatch(r"(?:([0-9]+)-)?([0-9]+):([0-9]+):([0-9]+)", text)):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return days * 1440 + hours * 60 + minutes + seconds / 60


def _node(row: Mapping[str, object]) -> SlurmNode:
    gres = str(row.get("gres", ""))
    counts = {name: _counts(gres, name) for name in ("gpu", "mps")}
    gpus, mps = (sum(of_types.values()) for of_types in counts.values())
    # 22.05 has its flags beside the state; later versions have all of them there.
    state = f"{row.get('state')} {row.get('state_flags')}".upper()
    return SlurmNode(
        name=str(row.get("name", "")),
        partitions=tuple(map(str, cast("list[object]", row.get("partitions") or ()))),
        free_cpus=int((_number(row.get("cpus")) or 0) - (_number(row.get("alloc_cpus")) or 0)),
        gpus=gpus,
        is_shared=gpus > 0 and mps == 100 * gpus,
        types=frozenset(counts["gpu"]),
        drained=str(row.get("reason") or "no reason is given") if "DRAIN" in state else "",
    )


def _counts(gres: str, name: str) -> Mapping[str, int]:
    """By type, of `gpu:h100:2(S:0),mps:200`."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    counts = Counter[str]()
    for kind, count in re.findall(rf"(?:^|,){name}(?::([^:,]+))?:([0-9]+)(?=,|$)", plain):
        counts[kind] += int(count)
    return counts
