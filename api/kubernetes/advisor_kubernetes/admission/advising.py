"""Pods that another scheduler places: share, memory and speed are written, and nothing is held."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from advisor.client import JobRequest
from advisor.core.gpu import PERCENTAGE, WHOLE, MemoryFit
from advisor_kubernetes import names
from advisor_kubernetes.admission.shape import added_to
from advisor_kubernetes.admission.wishes import Wishes
from advisor_kubernetes.objects import Object, part, parts, word
from advisor_node.advice import Answer, Question, Together

Advise: TypeAlias = Callable[[Question], Answer]
"""Asks the service, within the time that the API server waits."""


def question_of(asked: Wishes) -> Question:
    """The job beside the one that its author expects there."""
    own = JobRequest(job=asked.job, min_speed=asked.min_speed, max_p99_ms=asked.max_p99_ms)
    return Question(jobs=(own, JobRequest(job=asked.partner or asked.job)), model=None)


def advised(pod: Object, asked: Wishes, place: int, answer: Answer) -> tuple[list[Object], str]:
    """The patch of a pod, and what its author is told.

    Args:
        pod: As it came; it is not changed.
        asked: What it asks for; `placed_by` says in which words the answer is written.
        place: Of the container that computes.
        answer: Of the service.
    """
    if not isinstance(answer, Together):
        return [], f"advisor: no advice for {asked.job} beside {asked.partner}: {answer.why}"
    share, speed = answer.shares[0], answer.speeds[0]
    memory_mib = MemoryFit(answer.needs_mib[:1], None).limit_mib(0)
    notes = {
        names.ADVISED_SHARE: share,
        names.ADVISED_SPEED: f"{speed:.2f}",
        **({} if memory_mib is None else {names.ADVISED_MEMORY: str(memory_mib)}),
    }
    patch = [*_of_placer(pod, asked.placed_by or "", place, share, memory_mib, notes)]
    told = (
        f"advisor: {share} % of the GPU beside {asked.partner}, {100 * speed:.0f} % of the speed "
        "alone expected"
    )
    return [*added_to("/metadata/annotations", notes), *patch], told


def _of_placer(
    pod: Object, placer: str, place: int, share: str, memory_mib: int | None, notes: dict[str, str]
) -> Iterator[Object]:
    """The same in the words of who places the pod; what its author has set stays."""
    container = parts(pod, "spec", "containers")[place]
    path = f"/spec/containers/{place}"
    limits = part(container, "resources", "limits")
    if placer == "hami" and limits:
        wanted = {"nvidia.com/gpucores": f"{float(share):.0f}"}
        if memory_mib is not None:
            wanted["nvidia.com/gpumem"] = str(memory_mib)
        missing = {name: count for name, count in wanted.items() if name not in limits}
        yield from added_to(f"{path}/resources/limits", missing)
    set_by_author = part(pod, "metadata", "annotations")
    if placer == "kai" and memory_mib is not None and not {*_OF_KAI} & {*set_by_author}:
        notes[_OF_KAI[0]] = str(memory_mib)
    set_there = {word(variable, "name") for variable in parts(container, "env")}
    if placer == "dra" and float(share) < WHOLE and PERCENTAGE not in set_there:
        variable = {"name": PERCENTAGE, "value": share}
        yield (
            {"op": "add", "path": f"{path}/env/-", "value": variable}
            if set_there
            else {"op": "add", "path": f"{path}/env", "value": [variable]}
        )


_OF_KAI = ("gpu-memory", "gpu-fraction")
"""Annotations of KAI-Scheduler, MiB or a part of the card; one of them is set."""
