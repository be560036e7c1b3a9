"""Who meets whom, on which GPU, and what is written: without a cluster."""

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard, TypeVar
from unittest.mock import Mock

import pytest
from certificates import make_certificate
from hypothesis import given, settings, strategies as st
from kube_api import cluster_at, kube_api
from kube_objects import Call, KubeApi, away, merged
from kube_serving import admitted, claimed, gpus, make_node, node_of, pod_of
from scripted_http import Reply, scripted_http
from typer.testing import CliRunner
from waiting import eventually

from advisor.client import JobRequest
from advisor.errors import InputError
from advisor_cli import app as command_line
from advisor_kubernetes import cluster, names, serve
from advisor_kubernetes.cluster import (
    NODES,
    PODS,
    ClusterError,
    ObjectMirror,
    connect,
    list_of,
    quantity,
)
from advisor_kubernetes.pairing import (
    MOST_KINDS,
    GpuSlot,
    Node,
    Pod,
    PodDecision,
    Round,
    Start,
    Stay,
    WithoutAdvice,
    Write,
    unfinished,
)
from advisor_kubernetes.serve import SILENT_S, Events, Lease, aged, gpus_allowed, heard
from advisor_node.advice import Answer, Apart, NoAnswer, Question, Together

NOW_S = 1_000_000.0
APART = Apart("exclusive is better")
Decided = TypeVar("Decided", bound=PodDecision)
Ask: TypeAlias = Callable[[Collection[Question]], Mapping[Question, Answer]]


def stored(name: str, job: str, *, age_s: float = 5.0, **more: Any) -> dict[str, Any]:
    return held(pod_of(name, job, **more), age_s)


def held(pod: dict[str, Any], age_s: float = 5.0) -> dict[str, Any]:
    pod = admitted(pod)
    made = datetime.fromtimestamp(NOW_S - age_s, UTC).isoformat()
    uid = f"uid-{pod['metadata']['name']}"
    pod["metadata"] |= {"uid": uid, "resourceVersion": "7", "creationTimestamp": made}
    return pod


def waiting(name: str, job: str, **more: Any) -> Pod:
    return Pod.read(stored(name, job, **more))


def node(name: str, *uuids: str, **more: Any) -> Node:
    return Node.read(node_of(name, *uuids, **more))


def saves(**by_jobs: float) -> Mapping[frozenset[str], float]:
    """Energy saved, by the names of two jobs with an underscore between."""
    return {frozenset(jobs.split("_")): saved for jobs, saved in by_jobs.items()}


def decided(
    pods: list[Pod],
    nodes: list[Node],
    known: Mapping[frozenset[str], float],
    otherwise: Answer = APART,
    seen: list[Question] | None = None,
    needs: bool = True,
    **more: Any,
) -> list[PodDecision]:
    """What a round decides where these jobs together save energy; what it asks is `seen`."""
    seen = [] if seen is None else seen

    def ask(questions: Collection[Question]) -> Mapping[Question, Answer]:
        found: dict[Question, Answer] = {}
        seen.extend(questions)
        for question in questions:
            saved = known.get(frozenset(job.job for job in question.jobs))
            shares = (*(f"{share:g}" for share in question.running), "26", "50")
            shares = shares[-len(question.jobs) :] if question.running else shares
            needs_mib = (1000.0, 2000.0, 3000.0, 4000.0)[: len(question.jobs)]
            found[question] = (
                replace(otherwise, needs_mib=needs_mib)
                if saved is None and isinstance(otherwise, Apart) and needs
                else otherwise
                if saved is None
                else Together(shares=shares, energy_saved=saved, split="26/50", needs_mib=needs_mib)
            )
        return found

    return [*Round(pods=pods, nodes=nodes, ask=ask, now_s=NOW_S, **more).decide()]


def only(kind: type[Decided], *round_: Any, **more: Any) -> Decided:
    [found] = decided(*round_, **more)
    assert isinstance(found, kind)
    return found


def decided_by(
    ask: Ask, pods: list[Pod], nodes: list[Node], now_s: float = NOW_S
) -> list[PodDecision]:
    return [*Round(pods=pods, nodes=nodes, ask=ask, now_s=now_s).decide()]


def good(shares: str = "30/70") -> Together:
    return Together(
        shares=tuple(shares.split("/")), needs_mib=(None, None), energy_saved=0.1, split=shares
    )


def is_pair(decision: PodDecision) -> TypeGuard[Start]:
    return isinstance(decision, Start) and len(decision.pods) == 2


def pairs(decisions: list[PodDecision]) -> list[set[str]]:
    return [{p.key.partition("/")[2] for p in d.pods} for d in decisions if is_pair(d)]


def test_nobody_is_left_whom_another_choice_would_have_paired() -> None:
    """The oldest two would save most, and leave two for whom there is nobody else."""
    ages_s = {("o", "a"): 9, ("p", "a"): 8, ("q", "b"): 7, ("r", "b"): 6}
    pods = [waiting(*names_, age_s=age_s) for names_, age_s in ages_s.items()]
    found = decided(pods, [node("n", "GPU-1", "GPU-2")], saves(a=0.5, a_b=0.1))
    assert pairs(found) == [{"o", "q"}, {"p", "r"}]
    # With one GPU for all of them those who save most get it.
    assert pairs(decided(pods, [node("n", "GPU-1")], saves(a=0.5, a_b=0.1))) == [{"o", "p"}]


def test_pods_grow_old_by_our_own_clock_where_that_of_the_api_server_is_ahead() -> None:
    ahead, old = waiting("a", "a", age_s=-3600), waiting("b", "b", age_s=30)
    first_s = dict[str, float]()
    assert [NOW_S - pod.created_s for pod in aged([ahead, old], first_s, NOW_S, 100.0)] == [0, 30]
    later = aged([ahead, old], first_s, NOW_S + 5, 105.0)
    assert [NOW_S + 5 - pod.created_s for pod in later] == [5, 35]
    assert pairs(decided(later, [node("n", "GPU-1")], saves(a_b=0.2))) == [{"a", "b"}]


def test_pods_wait_a_moment_for_those_that_are_made_with_them() -> None:
    """Then they are matched, all at once; who waited long enough comes before who saves more."""
    young = [waiting("a", "a", age_s=1), waiting("b", "b", age_s=0)]
    [stay, _] = decided(young, [node("n", "GPU-1")], saves(a_b=0.2))
    assert isinstance(stay, Stay)
    late = [
        waiting("w", "a", age_s=70), waiting("x", "b", age_s=9),
        waiting("y", "c", age_s=9), waiting("z", "c", age_s=9),
    ]  # fmt: skip
    found = decided(late, [node("n", "GPU-1")], saves(a_b=0.1, c=0.5))
    assert pairs(found) == [{"w", "x"}]
    # Also where it is the younger one of the two that would wait no longer.
    late[:2] = [waiting("w", "a", age_s=9), waiting("x", "b", age_s=8, max_wait_s="5")]
    found = decided(late, [node("n", "GPU-1")], saves(a_b=0.1, c=0.5))
    assert pairs(found) == [{"w", "x"}]


def running(pods: list[Pod], start: Start) -> list[Pod]:
    bodies = {write.pod.uid: write.body for write in start.writes()}
    return [
        replace(pod, gates=(), given=bodies[pod.uid]["metadata"]["annotations"])
        if pod.uid in bodies
        else pod
        for pod in pods
    ]


def notes_of(write: Write) -> dict[str, str | None]:
    """What a patch writes of shares, partners and memory."""
    keys = (
        names.SHARE_PERCENT, names.SPLIT, names.GPU_UUID, names.PARTNER, names.PARTNER_UID,
        names.MEMORY_LIMIT,
    )  # fmt: skip
    return {key: write.body["metadata"]["annotations"].get(key) for key in keys}


def test_a_third_pod_joins_two_that_run() -> None:
    pods = [waiting(name, name, books="30", age_s=9 - n) for n, name in enumerate("abc")]
    gpu = node("n", "GPU-1")
    [pair, _] = decided(pods, [gpu], saves(a_b=0.3))
    assert isinstance(pair, Start)
    there = running(pods, pair)
    join = only(Start, there, [gpu], saves(a_b_c=0.1))
    assert [pod.name for pod in join.pods] == ["c"]
    assert [pod.name for pod in join.beside] == ["a", "b"]
    [write] = join.writes()
    # What it needs, with a margin, and of what nobody needs the part that is booked.
    bound_mib = 3512 + int(0.9 * (int(0.95 * 143771) - 1512 - 2512 - 3512))
    assert notes_of(write) == {
        names.SHARE_PERCENT: "50",
        names.SPLIT: "50/26/50",
        names.GPU_UUID: "GPU-1",
        names.PARTNER: "default/a, default/b",
        names.PARTNER_UID: None,
        names.MEMORY_LIMIT: f"0={bound_mib}M",
    }
    full = [*running(there, join), waiting("d", "d", books="30")]
    assert isinstance(decided(full, [gpu], saves(a_b_c_d=0.5))[0], Stay)


def test_small_pods_fill_one_gpu_before_they_take_another() -> None:
    """Four that fit on one begin there, one after the other; more take as few as they need."""
    pods = [waiting(f"p{n}", "a", books="25", age_s=20 - n) for n in range(8)]
    nodes = [node("n", *(f"GPU-{n}" for n in range(5)))]
    for began in (4, 6, 8):
        for start in decided(pods, nodes, saves(a=0.3)):
            if isinstance(start, Start):
                pods = running(pods, start)
        assert sum(not pod.waits for pod in pods) == began
    assert len({pod.holds for pod in pods}) == 2
    # Not those who have waited too long, and not where four are too many.
    late = [waiting(f"p{n}", "a", books="25", age_s=99) for n in range(4)]
    assert len(pairs(decided(late, nodes, saves(a=0.3)))) == 2
    other = [waiting(f"p{n}", "aabb"[n], books="25", age_s=9 - n) for n in range(4)]
    assert len(pairs(decided(other, nodes, saves(a=0.3, b=0.3)))) == 2


def test_who_is_left_gets_the_next_partner() -> None:
    pods = [waiting("a", "a", age_s=9), waiting("b", "b", age_s=8), waiting("c", "c", age_s=7)]
    gpu = node("n", "GPU-1")
    [pair, _] = decided(pods, [gpu], saves(a_b=0.3))
    assert isinstance(pair, Start)
    a, b, c = running(pods, pair)
    questions: list[Question] = []
    join = only(Start, [a, replace(b, over=True), c], [gpu], saves(a_c=0.1), seen=questions)
    assert [pod.name for pod in (*join.beside, *join.pods)] == ["a", "c"]
    [asked] = questions
    assert (asked.running, [job.job for job in asked.jobs]) == ((26.0,), ["a", "c"])


def test_who_began_alone_leaves_memory_to_who_joins() -> None:
    alone, joins, gpus_ = waiting("a", "a", age_s=99), waiting("b", "b"), [node("n", "GPU-1")]
    [a] = running([alone], only(Start, [alone], gpus_, {}))
    assert a.bound_mib == 1512 + (int(0.95 * 143771) - 1512) // 2
    assert [pod.name for pod in only(Start, [a, joins], gpus_, saves(a_b=0.2)).beside] == ["a"]
    # Its need is not known, or it books all: it has all of the memory, and nobody joins it.
    unknown = Apart("no profile")
    [a] = running([alone], only(Start, [alone], gpus_, {}, otherwise=unknown, needs=False))
    assert a.bound_mib == int(0.95 * 143771)
    stay = only(Stay, [a, joins], [*gpus_, node("m", "GPU-2")], saves(a_b=0.2))
    assert "a runs and may take 136,582 MiB of the 136,582 MiB of GPU memory" in stay.why


def test_who_books_all_of_a_gpu_is_alone_at_once() -> None:
    pods = [waiting("a", "a", books="100"), waiting("b", "b", books="50")]
    alone, stay = decided(pods, [node("n", "GPU-1")], saves(a_b=0.3))
    assert isinstance(alone, Start)
    assert alone.why == "alone on a whole GPU: it books all of it"
    assert isinstance(stay, Stay)


def test_processors_and_memory_of_nodes_are_counted() -> None:
    def greedy(name: str) -> Pod:
        pod = pod_of(name, name, max_wait_s="0")
        pod["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "60", "memory": "1Gi"}
        return Pod.read(held(pod))

    def sized(name: str, *uuids: str) -> Node:
        item = node_of(name, *uuids)
        item["status"]["allocatable"] = {
            "cpu": "64", "memory": "8Gi", "pods": "110", names.SHARE_RESOURCE: "200",
        }  # fmt: skip
        return Node.read(item)

    nodes = [sized("n", "GPU-1", "GPU-2"), sized("m", "GPU-3")]
    found = decided([greedy("a"), greedy("b"), greedy("c")], nodes, saves(a_b=0.3))
    assert [type(decision) for decision in found] == [Start, Start, Stay]
    assert {d.place.key for d in found if isinstance(d, Start)} == {"GPU-1", "GPU-3"}
    only(Stay, [greedy("a")], [nodes[0]], {}, others={"n": {"cpu": 5.0}})


def test_a_pod_may_fill_a_node_to_the_last_tenth_of_a_processor() -> None:
    """Three tenths are no more than 300m, whatever floating point makes of their sum."""
    item = node_of("n", "GPU-1")
    item["status"]["allocatable"] = {"cpu": "300m", "pods": "110", names.SHARE_RESOURCE: "100"}
    pod = pod_of("a", "a", max_wait_s="0")
    pod["spec"]["containers"][0]["resources"]["requests"] |= {"cpu": "100m"}
    others = {"n": {"cpu": quantity("100m") + quantity("100m")}}
    [found] = decided([Pod.read(held(pod))], [Node.read(item)], {}, others=others)
    assert isinstance(found, Start)


def test_node_whose_device_plugin_offers_gpus_is_refused() -> None:
    item = node_of("n", "GPU-1")
    item["status"]["allocatable"] = {"nvidia.com/gpu": "8"}
    refused = Node.read(item)
    assert refused.gpus == ()
    stay = only(Stay, [waiting("a", "a", max_wait_s="0")], [refused], {})
    assert "n: its device plugin offers 8 nvidia.com/gpu" in stay.why
    assert "make it again with advisor.dev/when-full: whole" in stay.why
    item["status"]["allocatable"] = {"nvidia.com/gpu": "0"}
    assert len(Node.read(item).gpus) == 1


@pytest.mark.parametrize(("wishes", "work_s"), [({"expected_s": "60"}, 3600), ({}, None)])
def test_wishes_reach_the_service(wishes: dict[str, str], work_s: float | None) -> None:
    """Lengths where both are known, to two digits; p99 and speed of each."""
    questions: list[Question] = []
    a = waiting("a", "a", max_p99_ms="12.5", expected_s="3612", min_speed="0.5")
    decided([a, waiting("b", "b", **wishes)], [node("n", "GPU-1")], {}, seen=questions)
    first = JobRequest(job="a", min_speed=0.5, max_p99_ms=12.5, work_s=work_s)
    assert questions[0].jobs == (first, JobRequest(job="b", work_s=work_s and 60))


@pytest.mark.parametrize(
    ("began_s", "joins", "known"),
    [
        (1000, {"expected_s": "60"}, [2600, 60]),
        (None, {"expected_s": "60"}, [3600, 60]),
        (3601, {"expected_s": "60"}, [None, None]),
        (1000, {}, [None, None]),
    ],
)
def test_lengths_of_who_joins_and_of_who_runs_reach_the_service(
    began_s: float | None, joins: dict[str, str], known: list[float | None]
) -> None:
    questions: list[Question] = []
    item = stored("a", "a", age_s=5000, expected_s="3600")
    start = only(Start, [Pod.read(item)], [node("n", "GPU-1")], {})
    if began_s is not None:
        item["status"] = {"startTime": datetime.fromtimestamp(NOW_S - began_s, UTC).isoformat()}
    [a] = running([Pod.read(item)], start)
    decided([a, waiting("b", "b", **joins)], [node("n", "GPU-1")], {}, seen=questions)
    assert [job.work_s for job in questions[0].jobs] == known


def test_many_kinds_of_one_namespace_hold_up_no_other() -> None:
    evil = [waiting(f"e{n}", "a", min_speed=f"0.{n % 100:02d}", age_s=50) for n in range(500)]
    others = [waiting(name, name, namespace="tenant") for name in "xy"]
    asked: list[int] = []

    def ask(questions: Collection[Question]) -> Mapping[Question, Answer]:
        asked.append(len(questions))
        return dict.fromkeys(questions, good()) if len(questions) == 1 else {}

    assert pairs(decided_by(ask, [*evil, *others], [node("n", "GPU-1")])) == [{"x", "y"}]
    assert max(asked) <= MOST_KINDS * (MOST_KINDS + 1) / 2


def test_every_kind_has_its_turn() -> None:
    pods = [waiting(f"p{n}", f"j{n}", age_s=200 - n, max_wait_s="900") for n in range(100)]

    def ask(questions: Collection[Question]) -> Mapping[Question, Answer]:
        fits = {"j90", "j95"}
        return {q: good() if {job.job for job in q.jobs} == fits else APART for q in questions}

    rounds = [decided_by(ask, pods, [node("n", "GPU-1")], NOW_S + n) for n in range(10)]
    assert {"p90", "p95"} in [pair for found in rounds for pair in pairs(found)]


def test_pod_that_waited_long_enough_waits_on_while_something_was_not_asked() -> None:
    """Else who has many jobs would run them alone, though they share well."""
    pods = [waiting("a", "a", age_s=99), waiting("b", "b", age_s=99)]
    found = decided_by(lambda _: {}, pods, [node("n", "GPU-1", "GPU-2")])
    assert [d.why for d in found] == ["waits for advice"] * 2


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ({}, {"user": 1001}, False),
        ({}, {"user": None}, False),
        ({}, {"with": "x"}, False),
        ({}, {"namespace": "tenant"}, False),
        ({"books": "51"}, {}, False),
        # Where a pod names no user, its image does, and another image may name another one.
        ({"user": None}, {"user": None}, True),
        ({"user": None}, {"user": None, "image": "another"}, False),
    ],
)
def test_pods_that_must_not_meet_do_not(
    first: dict[str, Any], second: dict[str, Any], meet: bool
) -> None:
    """MPS serves one user; shares fill one GPU; a pod that names a partner waits for it."""
    pods = [waiting("a", "a", **first), waiting("b", "b", **second)]
    assert bool(pairs(decided(pods, [node("n", "GPU-1")], saves(a_b=0.2)))) == meet


def test_pods_of_two_namespaces_are_on_no_node_together() -> None:
    """They would see each other's shared memory; a site may say that they trust each other."""
    other = waiting("b", "b", max_wait_s="0", namespace="tenant")
    pods = [waiting("a", "a", max_wait_s="0", age_s=9), other]
    start, stay = decided(pods, [node("n", "GPU-1", "GPU-2")], {})
    assert isinstance(start, Start)
    assert isinstance(stay, Stay)
    first = Pod.read(merged(stored("a", "a"), start.writes()[0].body))
    only(Stay, [first, other], [node("n", "GPU-1", "GPU-2")], {})
    mixed = decided(pods, [node("n", "GPU-1", "GPU-2")], {}, mixed_nodes=True)
    assert [type(decision) for decision in mixed] == [Start, Start]


def test_one_gpu_holds_one_pair() -> None:
    pods, gpu = [waiting(name, "a", age_s=9 - n) for n, name in enumerate("wxyz")], node("n", "G")
    pair, *rest = decided(pods, [gpu], saves(a=0.2))
    assert is_pair(pair)
    assert pairs([pair, *rest]) == [{"w", "x"}]
    assert [d.why for d in rest if isinstance(d, Stay)] == [
        "no GPU is free that the pod may use"
    ] * 2
    there = running(pods, pair)
    assert pairs(decided(there, [gpu], saves(a=0.2))) == []
    ended = [replace(pod, over=not pod.waits) for pod in there]
    assert pairs(decided(ended, [gpu], saves(a=0.2))) == [{"y", "z"}]


def quota(namespace: str, used: str | None = None, **hard: str) -> dict[str, Any]:
    named = {f"requests.{key.replace('__', '.').replace('_', '/')}": v for key, v in hard.items()}
    status = {"used": {"requests.nvidia.com/gpu": used}} if used else {}
    meta = {"name": "q", "namespace": namespace}
    return {"metadata": meta, "spec": {"hard": named}, "status": status}


def test_quotas_say_how_many_gpus_a_namespace_may_hold() -> None:
    quotas = [
        quota("a", advisor__dev_share="150"),
        quota("a", nvidia__com_gpu="0"),
        quota("b", nvidia__com_gpu="0"),
        quota("c", "3", nvidia__com_gpu="4"),
        quota("d"),
        merged(quota("e", advisor__dev_share="100"), {"spec": {"scopes": ["BestEffort"]}}),
    ]
    assert gpus_allowed(quotas) == ({"a": 2, "b": 0, "c": 1}, {})


@pytest.mark.parametrize(
    "spec", [{"hard": {"requests.advisor.dev/share": "many"}}, {"hard": 5}, "all"]
)
def test_a_quota_that_cannot_be_read_holds_up_its_own_namespace_alone(spec: object) -> None:
    wrong = {"metadata": {"name": "q", "namespace": "default"}, "spec": spec}
    allowed, unread = gpus_allowed([wrong, quota("tenant", advisor__dev_share="100")])
    assert allowed == {"tenant": 1}
    other = waiting("b", "b", max_wait_s="0", namespace="tenant")
    pods = [waiting("a", "a", max_wait_s="0"), other]
    nodes = [node("n", "GPU-1"), node("m", "GPU-2")]
    [stay, start] = decided(pods, nodes, {}, allowed=allowed, unread=unread)
    assert isinstance(start, Start)
    assert isinstance(stay, Stay)
    assert "the quota q cannot be read: " in stay.why
    assert stay.held_up


def test_nobody_holds_more_gpus_than_the_quota_of_the_namespace() -> None:
    pods = [waiting(name, name, age_s=99 - n) for n, name in enumerate("abc")]
    nodes = [node("n", "GPU-1", "GPU-2", "GPU-3")]
    found = decided(pods, nodes, {}, allowed={"default": 2})
    assert [type(decision) for decision in found] == [Start, Start, Stay]
    assert found[-1].why == "the quota of the namespace is for 2 GPUs, and its pods hold as many"
    assert "is for no GPU" in only(Stay, [waiting("a", "a")], nodes, {}, allowed={"default": 0}).why


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        (3, 3),
        ("500m", 0.5),
        ("1k", 1000),
        ("2Mi", 2**21),
        ("1e3", 1000),
        ("1.5G", 1.5e9),
        (".5", 0.5),
        ("1E", 1e18),
    ],
)
def test_quantities_are_read_as_kubernetes_writes_them(text: object, number: float) -> None:
    assert quantity(text) == pytest.approx(number)
    with pytest.raises(InputError):
        quantity(f"{text}x")


def test_pod_that_waited_long_enough_runs_alone() -> None:
    start = only(Start, [waiting("a", "a", age_s=61)], [node("n", "GPU-1")], {})
    [write] = start.writes()
    assert write.body["metadata"]["annotations"][names.WHY] == start.why
    assert start.why == "alone on a whole GPU: no partner came"
    found = notes_of(write)
    assert (found[names.SHARE_PERCENT], found[names.SPLIT], found[names.PARTNER]) == (
        "100", "alone", None,
    )  # fmt: skip
    only(Stay, [waiting("a", "a", age_s=61, max_wait_s="90")], [node("n", "GPU-1")], {})


@pytest.mark.parametrize(("without", "outcome"), [("pass", Start), ("hold", Stay)])
def test_policy_says_what_pods_do_without_advice(without: WithoutAdvice, outcome: type) -> None:
    """Only after their wait: a restart of the service sends nobody to a whole GPU at once."""
    silent = NoAnswer("nobody listens")
    for age_s, expected in ((99, outcome), (5, Stay)):
        pods = [waiting(name, name, age_s=age_s) for name in "ab"]
        nodes = [node("n", "GPU-1", "GPU-2")]
        found = decided(pods, nodes, {}, otherwise=silent, without_advice=without)
        assert [type(d) for d in found] == [expected, expected]
        assert "no advice: nobody listens" in found[0].why


def test_each_gpu_model_is_asked_for() -> None:
    nodes = [node("n", "GPU-1", model="A"), node("m", "GPU-2", model="B")]
    asked: list[str | None] = []

    def ask(questions: Collection[Question]) -> Mapping[Question, Answer]:
        asked.extend(question.model for question in questions)
        return {q: good() if q.model == "B" else Apart("no profile") for q in questions}

    [found] = decided_by(ask, [waiting("a", "a"), waiting("b", "b")], nodes)
    assert isinstance(found, Start)
    assert (found.place.key, {*asked}) == ("GPU-2", {"A", "B"})


TAINT = {"key": "gpu", "value": "mps", "effect": "NoSchedule"}
IN_ZONE = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
        ]
    }
}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, False),
        ({"tolerations": [{"operator": "Exists"}]}, True),
        ({"tolerations": [{"key": "gpu", "operator": "Equal", "value": "mps"}]}, True),
        ({"tolerations": [{"key": "gpu", "value": "mps", "effect": "NoSchedule"}]}, True),
        ({"tolerations": [{"key": "gpu", "value": "other"}]}, False),
        ({"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]}, False),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "b"}}, False),
        ({"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": IN_ZONE}}, False),
    ],
)
def test_pods_go_only_to_nodes_that_take_them(spec: dict[str, Any], fits: bool) -> None:
    """A pod that is kept on a node which refuses it would wait for ever."""
    pod = pod_of("a", "a", max_wait_s="0")
    pod["spec"] |= spec
    [found] = decided([Pod.read(held(pod))], [node("n", "GPU-1", taints=[TAINT])], {})
    assert isinstance(found, Start if fits else Stay)


@pytest.mark.parametrize(
    ("fields", "metadata"),
    [
        ({"spec": {"unschedulable": True}}, {}),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, {}),
        ({}, {"labels": {}}),
        ({}, {"annotations": {names.GPUS: gpus("GPU-1", ready=False)}}),
    ],
)
def test_node_that_takes_nobody_has_no_gpus(
    fields: dict[str, Any], metadata: dict[str, Any]
) -> None:
    item = node_of("n", "GPU-1") | fields
    item["metadata"] |= metadata
    assert Node.read(item).gpus == ()


@pytest.mark.parametrize("text", ["{", "5", '[{"uuid": "x"}]', '{"a": 1}'])
def test_agent_that_writes_nonsense_is_an_error(text: str) -> None:
    item = node_of("n")
    item["metadata"]["annotations"][names.GPUS] = text
    with pytest.raises(InputError, match=r"advisor\.dev/gpus is not a list of GPUs"):
        Node.read(item)


def given_pair(shares: tuple[str, str] = ("26", "50")) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = stored("a", "a"), stored("b", "b")
    both = [Pod.read(first), Pod.read(second)]
    given = replace(only(Start, both, [node("n", "GPU-1")], saves(a_b=0.2)), shares=shares)
    return merged(first, given.writes()[0].body), second


SHARES = st.floats(1, 100).map(lambda share: f"{share:.10g}")


@given(st.tuples(SHARES, SHARES))
@settings(max_examples=25)
def test_second_pod_can_be_written_from_the_first_alone(shares: tuple[str, str]) -> None:
    """Whatever was killed between the two patches, the second pod gets the other share."""
    first, second = given_pair(shares)
    [write] = unfinished([Pod.read(first), Pod.read(second)], {"n": "n.example"})
    found = notes_of(write)
    assert (found[names.SHARE_PERCENT], found[names.GPU_UUID], found[names.PARTNER]) == (
        shares[1], "GPU-1", "default/a",
    )  # fmt: skip
    assert write.body["spec"]["nodeSelector"] == {names.HOSTNAME: "n.example"}
    assert write.body["metadata"]["resourceVersion"] == "7"


def test_second_pod_is_given_to_nobody_else() -> None:
    first, second = given_pair()
    found = decided(
        [Pod.read(first), Pod.read(second), waiting("c", "c")],
        [node("n", "GPU-1", "GPU-2")],
        saves(a_b=0.2, b_c=0.9),
    )
    assert pairs(found) == []


@pytest.mark.parametrize("left_alone", [(), ("uid-b",)])
def test_nobody_joins_a_pod_whose_partner_is_still_to_be_written(left_alone: tuple[str]) -> None:
    """Else three would book 150 of a GPU, once the partner is written."""
    first, second = given_pair()
    pods = [Pod.read(first), Pod.read(second), waiting("c", "c")]
    [found] = decided(pods, [node("n", "GPU-1")], saves(a_c=0.9), left_alone=left_alone)
    assert isinstance(found, Stay)


def test_partner_that_can_never_be_written_is_given_to_others() -> None:
    """Not from what an earlier version wrote into the first, which had no memory in it."""
    first, second = given_pair()
    del first["metadata"]["annotations"][names.MEMORY_MIB]
    pods = [Pod.read(first), Pod.read(second), waiting("c", "c")]
    assert pairs(decided(pods, [node("n", "GPU-1", "GPU-2")], saves(b_c=0.9))) == [{"b", "c"}]


@pytest.mark.parametrize("split", ["", "26", "26/", "26/0", "26/101", "26/nan", "x/50", "a/b"])
def test_second_pod_is_not_written_from_what_the_chooser_did_not_write(split: str) -> None:
    """Forged while the webhook was away: a share that is none would mean no limit."""
    first, second = given_pair()
    first["metadata"]["annotations"][names.SPLIT] = split
    assert [*unfinished([Pod.read(first), Pod.read(second)], {})] == []


@pytest.mark.parametrize(
    ("of_first", "of_second"),
    [
        ({}, {"metadata": {"uid": "another"}}),
        ({"status": {"phase": "Failed"}}, {}),
        ({}, {"spec": {"schedulingGates": []}}),
        ({"metadata": {"namespace": "tenant"}}, {}),
    ],
)
def test_nothing_is_unfinished_where_the_pair_is_no_more(
    of_first: dict[str, Any], of_second: dict[str, Any]
) -> None:
    """A later pod of the same name is another pod; one of another tenant was never the partner."""
    first, second = given_pair()
    first, second = merged(first, of_first), merged(second, of_second)
    assert [*unfinished([Pod.read(first), Pod.read(second)], {})] == []


def test_patch_opens_our_gate_and_no_other() -> None:
    item = stored("a", "a", age_s=99)
    item["spec"]["schedulingGates"].append({"name": "example.com/quota"})
    after = merged(item, only(Start, [Pod.read(item)], [node("n", "GPU-1")], {}).writes()[0].body)
    assert after["spec"]["schedulingGates"] == [{"name": "example.com/quota"}]
    assert json.loads(json.dumps(after))["metadata"]["annotations"]["gpu-compute.portion"] == "1"


def test_claim_is_a_place_of_its_own() -> None:
    items = [held(claimed(pod_of(name, name)), 9 - n) for n, name in enumerate("abc")]
    found = decided([Pod.read(item) for item in items], [], saves(a_b=0.2, a_c=0.1))
    assert pairs(found) == [{"a", "b"}]
    assert isinstance(found[-1], Stay)
    assert isinstance(found[0], Start)
    body = found[0].writes()[0].body
    assert "nodeSelector" not in body["spec"]
    assert names.GPU_UUID not in body["metadata"]["annotations"]
    # Its GPU is one of those that the quota of the namespace is for.
    pods = [*running([Pod.read(item) for item in items[:2]], found[0]), waiting("d", "d", age_s=99)]
    stay = only(Stay, pods, [node("n", "GPU-1")], {}, allowed={"default": 1})
    assert stay.why == "the quota of the namespace is for 1 GPU, and its pods hold as many"


# What the chooser keeps between rounds: agents heard, events, the mirror, the Lease, errors.


GPU = GpuSlot(key="GPU-1", model="H100")
NODE = Node(name="one", labels={}, taints=(), gpus=(GPU,), checked_at="10:00")


@pytest.mark.parametrize(
    "looks",
    [
        # Seconds, what the annotation says, and whether the GPUs of the node are used.
        [(0, "10:00", True), (SILENT_S, "10:00", True), (SILENT_S + 1, "10:00", False),
         (SILENT_S + 2, "09:00", True)],
        [(0, "10:00", True), (SILENT_S, None, False), (5 * SILENT_S, "10:00", True)],
        [(0, "", True), (9 * SILENT_S, "", True)],
    ],
)  # fmt: skip
def test_an_agent_that_is_silent_is_not_heard(looks: list[tuple[float, str | None, bool]]) -> None:
    """Only a change of the text counts; a site may write an annotation that nobody renews."""
    seen = dict[str, tuple[str, float]]()
    for now_s, checked_at, is_heard in looks:
        nodes = [] if checked_at is None else [replace(NODE, checked_at=checked_at)]
        assert heard(nodes, seen, now_s) == (nodes if is_heard else [])


def test_reasons_that_change_all_the_time_are_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second another kind of pods is looked at, so the reason changes each second."""
    api = Mock()
    told = Events(api)
    pods = (merged(admitted(pod_of(uid, uid)), {"metadata": {"uid": uid}}) for uid in "ab")
    a, b = map(Pod.read, pods)

    def messages() -> list[str]:
        return [call.args[1]["message"] for call in api.post.call_args_list]

    monkeypatch.setattr(serve, "_WITHIN_S", 3600.0)
    for turn in range(100):
        told.say_it_waits(a, f"not beside {turn % 7}", held_up=False)
    assert messages() == [f"not beside {turn}" for turn in range(5)]
    told.say_it_waits(b, "waits", held_up=True)
    told.say(a, "GotGpu", "50 %")
    assert messages()[5:] == ["waits", "50 %"]
    monkeypatch.setattr(serve, "_WITHIN_S", 0.0)
    told.say_it_waits(a, "after a while", held_up=False)
    told.forget({"b"})
    assert messages()[7:] == ["after a while"]


LEASE = "/apis/coordination.k8s.io/v1/namespaces/advisor/leases/advisor-chooser"


@pytest.fixture
def api() -> Generator[KubeApi]:
    """A cluster with one node."""
    with kube_api() as server:
        make_node(server, "n", "GPU-1")
        yield server


@pytest.fixture
def kept(api: KubeApi) -> Generator[ObjectMirror]:
    """A mirror of the nodes that has listed them."""
    stopping = threading.Event()
    made = ObjectMirror(cluster_at(api.url), NODES, lambda: None)
    thread = threading.Thread(target=made.run, args=(stopping,), daemon=True)
    thread.start()
    eventually(lambda: made.synced.is_set() and api.is_watched)
    yield made
    stopping.set()
    api.end_watches()
    thread.join(20)


def labels(kept: ObjectMirror) -> dict[str, dict[str, str]]:
    return {n["metadata"]["name"]: n["metadata"]["labels"] for n in kept.objects()}


def test_a_late_event_undoes_nothing(api: KubeApi, kept: ObjectMirror) -> None:
    """Else a GPU would look free that was just given away."""
    [node] = kept.objects()
    metadata = {**node["metadata"], "resourceVersion": "1000", "labels": {"by": "us"}}
    kept.put({**node, "metadata": metadata})
    api.change(f"{NODES}/n", {"metadata": {"labels": {"by": "another"}}})
    make_node(api, "later")
    eventually(lambda: "later" in labels(kept))
    assert labels(kept)["n"] == {"by": "us"}


def test_a_late_answer_brings_back_nothing_that_is_gone(api: KubeApi, kept: ObjectMirror) -> None:
    """Else a pod that was deleted as it was written would hold its GPU for ever."""
    [node] = kept.objects()
    api.delete(f"{NODES}/n")
    eventually(lambda: not kept.objects())
    kept.put(node)
    assert kept.objects() == []


def test_a_server_that_fails_is_asked_with_pauses(
    api: KubeApi, kept: ObjectMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has enough to do; what was missed is there when it answers again."""
    monkeypatch.setattr(cluster, "_PAUSE_S", 0.1)
    asked_s: list[float] = []

    def refuse(call: Call) -> None:
        asked_s.append(time.monotonic())
        away(call)

    answers, api.refuse = api.refuse, refuse
    api.end_watches()
    eventually(lambda: len(asked_s) > 4)
    api.change(f"{NODES}/n", {"metadata": {"labels": {"by": "another"}}})
    api.refuse = answers
    eventually(lambda: labels(kept)["n"].get("by") == "another")
    # The first failure is that of the watch that ended.
    assert min(b - a for a, b in itertools.pairwise(asked_s[1:])) >= 0.1


def test_a_lease_is_lost_and_taken_by_our_own_clock(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder renewed it long ago by another clock; an API server that is away ends nothing."""
    monkeypatch.setattr(serve, "RENEW_S", 0.0)
    spec = {"holderIdentity": "other", "renewTime": "2001-01-01T00:00:00Z"}
    api.create(LEASE.rpartition("/")[0], {"metadata": {"name": "advisor-chooser"}, "spec": spec})
    ours = Lease(cluster_at(api.url), "advisor", "we")
    assert not ours.take()
    monkeypatch.setattr(serve, "_HELD_S", 0.5)
    eventually(ours.take)
    assert api.get(LEASE)["spec"]["holderIdentity"] == "we"
    answers, api.refuse = api.refuse, away
    with pytest.raises(ClusterError):
        ours.take()
    eventually(lambda: not ours.is_held)
    api.refuse = answers
    eventually(ours.take)


def test_without_a_cluster_it_says_where_one_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    module = sys.modules["kubernetes.config.kube_config"]
    monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="set KUBECONFIG"):
        connect()


def test_nothing_is_sent_where_an_answer_redirects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither the token nor what it asks."""
    with scripted_http() as others, scripted_http() as ours:
        named = {"name": "it", "cluster": {"server": ours.url}, "user": {"token": "secret"}}
        context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        file = tmp_path / "config"
        file.write_text(
            json.dumps(
                {"clusters": [named], "users": [named], "contexts": [context]}
                | {"current-context": "it"}
            )
        )
        module = sys.modules["kubernetes.config.kube_config"]
        monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        ours.will(Reply(status=307, headers={"Location": f"{others.url}/x"}))
        with pytest.raises(ClusterError, match="307"):
            connect().post(PODS, {"kind": "Pod"})
        assert [one.headers["authorization"] for one in ours.seen] == ["Bearer secret"]
        assert others.seen == []


def test_answers_that_are_none_are_errors_with_a_status(api: KubeApi) -> None:
    api.refuse = away
    with pytest.raises(ClusterError, match=r"503\. away") as refused:
        list_of(cluster_at(api.url), PODS)
    with pytest.raises(ClusterError, match="no answer to GET") as absent:
        cluster_at("http://127.0.0.1:9").get(PODS)
    assert (refused.value.status, absent.value.status) == (503, None)


def test_serve_says_what_is_wrong_with_its_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A key of another certificate is noticed at the start, not by the API server."""
    one, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "other")
    monkeypatch.setattr(
        "advisor_kubernetes.cluster.connect", lambda: cluster_at("http://127.0.0.1:9")
    )
    options = ["--tls-certificate", str(one.certificate), "--tls-key", str(other.key)]
    done = CliRunner().invoke(command_line.app, ["kubernetes", "serve", *options])
    assert isinstance(done.exception, InputError)
    assert "TLS cannot use" in str(done.exception)
