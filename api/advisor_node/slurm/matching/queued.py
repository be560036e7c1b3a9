"""Jobs as `squeue --json` has them, and the GPUs that they hold."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from advisor.errors import InputError
from advisor_node.slurm.comment import Named, parse_comment
from advisor_node.slurm.matching.slurm import SlurmCommand, listed, number, rows

WHOLE = 100
"""What Slurm counts for a whole GPU."""

_HELD = (
    "Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "JobArrayTaskLimit",
)  # fmt: skip
_MOST_TASKS = 1000


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

    @property
    def undecided(self) -> bool:
        """Whether nobody has said yet what it gets."""
        named = self.named
        return (
            self.pending
            and named is not None
            and named.share_text is None
            and self.counted == WHOLE
            and not self.held
        )

    @property
    def part(self) -> bool:
        """Whether it was given a part of a GPU."""
        named = self.named
        return named is not None and named.counted is not None and named.counted < WHOLE


def read_queue(ask: SlurmCommand) -> list[SlurmTask]:
    """All jobs that wait or run; those of highest priority, then the oldest first."""
    jobs = [job for row in rows(ask("squeue", "--json", "--all"), "jobs") for job in _jobs(row)]
    return sorted(jobs, key=lambda job: (-job.priority, *_order(job.key)))


def _order(key: str) -> tuple[int, int]:
    base, _, task = key.partition("_")
    return int(base), int(task or 0)


def _jobs(row: Mapping[str, Any]) -> Iterator[SlurmTask]:
    state: Any = row.get("job_state")
    states = list(map(str, listed(state))) or [str(state)]
    if not {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"} & set(states):
        return
    for key in _keys(row):
        yield _job(key, row, pending="PENDING" in states)


def _keys(row: Mapping[str, Any]) -> list[str]:
    array, task = (int(number(row.get(name)) or 0) for name in ("array_job_id", "job_id"))
    if not array:
        return [str(task)]
    if number(row.get("array_task_id")) is not None:
        return [f"{array}_{number(row['array_task_id']):.0f}"]
    tasks = list(_tasks(str(row.get("array_task_string") or "")))
    return [f"{array}_{one}" for one in tasks[:_MOST_TASKS]] or [str(task)]


def _tasks(text: str) -> Iterator[int]:
    """Of `1-3,7,10-20:5%2`."""
    for part in text.partition("%")[0].split(","):
        if found := re.fullmatch(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?", part):
            first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
            yield from range(first, last + 1, max(1, step))


def _job(key: str, row: Mapping[str, Any], *, pending: bool) -> SlurmTask:
    comment = str(row.get("comment") or "")
    asked = re.fullmatch(r"gres[:/]mps[:=]([0-9]+)", str(row.get("tres_per_node") or ""))
    return SlurmTask(
        key=key,
        user=str(row.get("user_name") or row.get("user_id")),
        partition=str(row.get("partition")),
        pending=pending,
        comment=comment,
        named=_named(comment),
        counted=int(asked[1]) if asked else None,
        eligible_s=number(row.get("eligible_time")) or 0.0,
        priority=number(row.get("priority")) or 0.0,
        limit_min=number(row.get("time_limit")),
        cpus=int(number(row.get("cpus")) or 1),
        where=str([row.get(k) for k in ("features", "excluded_nodes", "resv_name", "qos")]),
        needs_node=str(row.get("required_nodes") or ""),
        held=row.get("state_reason") in _HELD or number(row.get("priority")) == 0,
        cards=_cards(row),
    )


def _named(comment: str) -> Named | None:
    try:
        return parse_comment(comment)
    except InputError:
        return None


def _cards(row: Mapping[str, Any]) -> Mapping[tuple[str, int], int]:
    """Of `gres_detail`, an item for each node: `mps:30(IDX:0)`, `gpu:h100:2(IDX:0,3-4)`.

    Later versions count the parts by GPU: `mps:30(30/100,0/100)`.
    """
    named = (one.get("nodename") or one.get("name") for one in _allocated(row))
    nodes = [node for node in named if node] or [row.get("nodes")]
    found: dict[tuple[str, int], int] = defaultdict(int)
    for node, text in zip(nodes, row.get("gres_detail") or (), strict=False):
        for name, count, indexes in re.findall(
            r"(gpu|mps|shard)(?::[^:(,]+)?:([0-9]+)\(IDX:([0-9,-]+)\)", str(text)
        ):
            for index in _tasks(indexes):
                found[str(node), index] += int(count) if name == "mps" else WHOLE
        for parts in re.findall(r"mps(?::[^:(,]+)?:[0-9]+\(([0-9/,]+)\)", str(text)):
            for index, part in enumerate(parts.split(",")):
                if counted := int(part.partition("/")[0] or 0):
                    found[str(node), index] += counted
    return dict(found)


def _allocated(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    resources: Mapping[str, Any] = row.get("job_resources") or {}
    # 22.05 has a text in `nodes`; later versions have all of them there.
    found: Any = resources.get("allocated_nodes")
    if isinstance(nodes := resources.get("nodes"), dict):
        found = cast("Mapping[str, Any]", nodes).get("allocation")
    return listed(found)
