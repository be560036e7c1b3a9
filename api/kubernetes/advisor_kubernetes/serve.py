"""The process of the cluster: webhook and chooser behind one HTTPS port."""

import asyncio
import functools
import logging
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as _PLAIN
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from advisor.client import Client
from advisor.core.records import grouped
from advisor.errors import AdvisorError, InputError
from advisor_api.http.access import ANONYMOUS_READER, QUESTION, Caller, Most, ServeOptions
from advisor_api.http.connections import CERTIFIED
from advisor_api.http.routing import Gate, HttpMetrics, answer_errors
from advisor_kubernetes import names
from advisor_kubernetes.admission import Advise, review
from advisor_kubernetes.cluster import (
    NODES,
    PODS,
    QUOTAS,
    Cluster,
    ClusterError,
    Object,
    ObjectMirror,
    event_of,
    part,
    quantity,
    read_object,
    word,
)
from advisor_kubernetes.pairing import (
    Node,
    Pod,
    Round,
    Stay,
    WithoutAdvice,
    Write,
    added,
    requested,
    unfinished,
)
from advisor_node.advice import Advice, Answer, NoAnswer, Question

LOG = logging.getLogger("advisor.kubernetes")

SHARES = f"requests.{names.SHARE_RESOURCE}"
GPUS = f"requests.{names.GPU_RESOURCE}"


def gpus_allowed(quotas: Iterable[Object]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """The most GPUs by namespace, and why that of others is not known.

    A namespace without a quota on GPUs is in neither. One that has a quota on whole GPUs alone is
    held to what that leaves.
    """
    shares: dict[str, int] = {}
    whole: dict[str, int] = {}
    unread: dict[str, str] = {}
    for quota in quotas:
        metadata = quota.get("metadata", {})
        namespace = str(metadata.get("namespace"))
        try:
            if part(quota, "spec").get("scopes") or part(quota, "spec", "scopeSelector"):
                continue  # of some pods only
            hard, used = part(quota, "spec", "hard"), part(quota, "status", "used")
            if SHARES in hard:
                most = math.ceil(quantity(hard[SHARES]) / 100)
                shares[namespace] = min(most, shares.get(namespace, most))
            if GPUS in hard:
                most = max(0, int(quantity(hard[GPUS]) - quantity(used.get(GPUS, 0))))
                whole[namespace] = min(most, whole.get(namespace, most))
        except InputError as error:
            unread[namespace] = f"the quota {metadata.get('name')} cannot be read: {error.what}"
    return {**whole, **shares}, unread


SILENT_S = 120.0
"""An agent renews what it says twice a minute; GPUs of one that did not for so long are left."""


def heard(nodes: Iterable[Node], seen: dict[str, tuple[str, float]], now_s: float) -> list[Node]:
    """The nodes whose agent said something lately, or without an agent.

    Clocks of nodes are not compared: `seen` has what each agent said and since when, and is renewed
    for these nodes, which are all. `now_s` is of a clock that does not jump.
    """
    known = list(nodes)
    last = {node.name: seen.get(node.name, ("", now_s)) for node in known}
    seen.clear()
    for node in known:
        said, _ = last[node.name]
        seen[node.name] = last[node.name] if said == node.checked_at else (node.checked_at, now_s)
    return [n for n in known if not n.checked_at or now_s - seen[n.name][1] <= SILENT_S]


def aged(pods: Iterable[Pod], first_s: dict[str, float], now_s: float, clock_s: float) -> list[Pod]:
    """The pods; where the API server's clock is ahead of `now_s`, as old as they were seen.

    `first_s` has when each waiting pod was first seen, by a clock that does not jump and stands at
    `clock_s`; it is renewed.
    """
    known = list(pods)
    waiting = {pod.uid: first_s.get(pod.uid, clock_s) for pod in known if pod.waits}
    first_s.clear()
    first_s |= waiting
    seen_s = {uid: now_s - (clock_s - since_s) for uid, since_s in waiting.items()}
    return [
        replace(pod, created_s=seen_s[pod.uid])
        if pod.created_s > seen_s.get(pod.uid, math.inf)
        else pod
        for pod in known
    ]


# So often at most it is said of a pod in a while what it waits for: of many kinds of pods others
# are looked at each second, so that the reason changes all the time.
_MOST, _WITHIN_S = 5, 300.0


class Events:
    """Says things about pods, each once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[str, str] = {}
        self._waits: dict[str, deque[float]] = {}
        self._said_of_nodes: dict[str, str] = {}

    def say(self, pod: Pod, reason: str, text: str, *, kind: str = "Normal") -> None:
        """Say something about a pod, unless it was the last thing that was said of it."""
        if self._said.get(pod.uid) != text:
            self._said[pod.uid] = text
            self._send(
                {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}, kind, reason, text
            )

    def say_it_waits(self, pod: Pod, text: str, *, held_up: bool) -> None:
        """Say what a pod waits for, unless that was said lately, or often."""
        now_s = time.monotonic()
        said_s = self._waits.setdefault(pod.uid, deque(maxlen=_MOST))
        if self._said.get(pod.uid) != text and (
            len(said_s) < _MOST or now_s - said_s[0] > _WITHIN_S
        ):
            said_s.append(now_s)
            self.say(pod, "WaitsForGpu", text, kind="Warning" if held_up else "Normal")

    def say_of_node(self, name: str, reason: str, text: str) -> None:
        """Warn of a node, once; its events are where those of the kubelet are."""
        if self._said_of_nodes.get(name) != text:
            self._said_of_nodes[name] = text
            self._send({"kind": "Node", "name": name, "uid": name}, "Warning", reason, text)

    def _send(self, involved: Mapping[str, str], kind: str, reason: str, text: str) -> None:
        event = event_of(
            involved, {"component": "advisor", "host": socket.gethostname()}, kind, reason, text
        )
        try:
            self._cluster.post(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)
        except ClusterError as error:
            # An event is news, and no part of what was done.
            LOG.warning("no event for %s: %s", involved["name"], error)

    def forget(self, uids: set[str]) -> None:
        """Keep only what was said of these pods."""
        self._said = {uid: text for uid, text in self._said.items() if uid in uids}
        self._waits = {uid: said_s for uid, said_s in self._waits.items() if uid in uids}


# A holder that has not renewed for so long has lost it.
_HELD_S = 15

RENEW_S = 5.0

_NAME = "advisor-chooser"


class Lease:
    """Holds, or waits for, the right to choose.

    How old a Lease is one's own clock says, by when it was last seen to change: clocks of hosts
    differ.
    """

    def __init__(self, cluster: Cluster, namespace: str, identity: str) -> None:
        self._cluster, self._identity = cluster, identity
        self._list = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._held_until = self._tried_at = 0.0
        self._stamp: tuple[object, float] = (None, 0.0)

    @property
    def left_s(self) -> float:
        """How long this process may still choose; what it writes must end before."""
        return max(0.0, self._held_until - time.monotonic())

    @property
    def is_held(self) -> bool:
        """Whether this process may choose."""
        return self.left_s > 0

    def take(self) -> bool:
        """Renew or take the Lease when it is time to; whether this process may choose."""
        now = time.monotonic()
        if now - self._tried_at >= RENEW_S:
            self._tried_at = now
            try:
                self._take(now)
            except ClusterError as error:
                if not error.is_conflict:
                    raise
        return self.is_held

    def give_up(self) -> None:
        """Let the next one choose at once."""
        if self.is_held:
            self._held_until = 0.0
            self._write(self._get(), "")

    def _take(self, now: float) -> None:
        lease = self._get()
        spec = part(lease, "spec")
        stamp = (spec.get("holderIdentity"), spec.get("renewTime"))
        if stamp != self._stamp[0]:
            self._stamp = stamp, now
        if stamp[0] in (None, "", self._identity) or now - self._stamp[1] >= _HELD_S:
            self._write(lease, self._identity)
            # From before the request: others count from after it.
            self._held_until = now + _HELD_S

    def _get(self) -> Object:
        try:
            return self._cluster.get(f"{self._list}/{_NAME}")
        except ClusterError as error:
            if error.status != 404:
                raise
            return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}

    def _write(self, lease: Object, holder: str) -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "leaseDurationSeconds": _HELD_S, "renewTime": moment}
        body = {**lease, "metadata": {**part(lease, "metadata"), "name": _NAME}, "spec": spec}
        if word(part(lease, "metadata"), "resourceVersion"):
            self._cluster.put(f"{self._list}/{_NAME}", body)
        else:
            self._cluster.post(self._list, body)


T = TypeVar("T")

# Time passes for pods that wait, whether anything changes or not.
_TICK_S = 1.0


class Choosing:
    """Watches pods and nodes, and decides where it holds the Lease, which is in the namespace.

    Attributes:
        metrics: Of the whole process.
        username: The chooser's name as the API server sees it; None: not known yet.
        is_full: Whether all GPUs that pods may share are held, as of the last look; also where
            another process chooses.
    """

    def __init__(
        self,
        cluster: Cluster,
        service: Client,
        namespace: str,
        *,
        without_advice: WithoutAdvice = "pass",
        mixed_nodes: bool = False,
    ) -> None:
        self.metrics = metrics = HttpMetrics()
        self.username: str | None = None
        self._cluster, self._advice = cluster, Advice(service)
        self._looking = functools.partial(
            Round,
            without_advice=without_advice,
            mixed_nodes=mixed_nodes,
        )
        self._lease = Lease(cluster, namespace, f"{socket.gethostname()}-{os.urandom(4).hex()}")
        self._events = Events(cluster)
        self._waiting = metrics.gauge(
            "kubernetes_pods_waiting", "Pods behind the gate, where this leads"
        )
        self._leading = metrics.gauge("kubernetes_chooser_leads", "1 where this process chooses")
        self._decided = metrics.counter("kubernetes_pods_decided", "Pods given a GPU", ("outcome",))
        for outcome in ("paired", "joined", "alone"):
            self._decided.labels(outcome)
        self._conflicts = metrics.counter(
            "kubernetes_write_conflicts", "Writes that came after another change of the pod"
        )
        self._refused = metrics.gauge(
            "kubernetes_nodes_refused", "Nodes whose device plugin offers the same GPUs"
        )
        self._longest = metrics.gauge(
            "kubernetes_longest_wait_seconds", "Of the pod behind the gate that waits longest"
        )
        self._changed, self._stopping = threading.Event(), threading.Event()
        changed = self._changed.set
        self._pod_mirror = ObjectMirror(
            cluster, PODS, changed, labelSelector=f"{names.MANAGED}=true"
        )
        self._node_mirror = ObjectMirror(cluster, NODES, changed)
        self._quota_mirror = ObjectMirror(cluster, QUOTAS, changed)
        # What they ask of nodes; that one of them changes is no reason to look again.
        self._other_mirror = ObjectMirror(
            cluster, PODS, lambda: None, kept=_node_requests,
            labelSelector=f"{names.MANAGED}!=true", fieldSelector="spec.nodeName!=",
        )  # fmt: skip
        self._heard, self._first_s = dict[str, tuple[str, float]](), dict[str, float]()
        self._unreadable: set[str] = set()
        # What was read in this turn and in the one before, by uid and version.
        self._now: dict[object, Any] = {}
        self._before: dict[object, Any] = {}
        self._left_alone: dict[str, float] = {}
        self._last_round_s, self.is_full = time.monotonic(), False
        self._mirrors = (
            self._pod_mirror,
            self._node_mirror,
            self._quota_mirror,
            self._other_mirror,
        )

    @property
    def lives(self) -> bool:
        """Whether the chooser still comes round, once it has begun."""
        # A round takes as long as its answers; one that takes two minutes does not come back.
        return self.username is None or time.monotonic() - self._last_round_s < 120.0

    @property
    def ready(self) -> bool:
        """Whether the cluster was seen: rights and addresses are good."""
        return self.username is not None and self._synced

    @property
    def _synced(self) -> bool:
        return all(mirror.synced.is_set() for mirror in self._mirrors)

    @contextmanager
    def running(self) -> Generator[None]:
        """Choose until the end of the block."""
        runs = (*(mirror.run for mirror in self._mirrors), self._choose)
        # Daemons: a watch may wait for its next event for minutes.
        threads = [threading.Thread(target=r, args=(self._stopping,), daemon=True) for r in runs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            threads[-1].join(5.0)

    def _choose(self, stopping: threading.Event) -> None:
        """Choose until the end; nothing that goes wrong ends it."""
        # The webhook refuses what the chooser writes until it knows who that is.
        while self.username is None and not stopping.is_set():
            try:
                self.username = self._cluster.username()
            except AdvisorError as error:
                LOG.warning("%s", error)
                stopping.wait(1.0)
        while not stopping.is_set():
            if self._changed.wait(_TICK_S):
                # What changes together is looked at together.
                stopping.wait(0.05)
            self._changed.clear()
            try:
                self._turn()
            except AdvisorError as error:
                LOG.warning("%s", error)
                stopping.wait(_TICK_S)
            except Exception:  # a fault of ours must not leave all pods waiting forever
                LOG.exception("an internal error")
                stopping.wait(_TICK_S)
            self._last_round_s = time.monotonic()
        with suppress(AdvisorError):  # else the next one waits until it has run out
            self._lease.give_up()

    def _turn(self) -> None:
        leads = self._lease.take()
        self._leading.set(leads)
        if self._synced:
            self._before, self._now = self._now, {}
            nodes = self._read(self._node_mirror.objects(), Node.read)
            there = [gpu.key for node in nodes for gpu in node.gpus]
            self.is_full = bool(there) and {pod.holds for pod in self._pods()}.issuperset(there)
            if leads:
                self._round(nodes)

    def _round(self, nodes: Sequence[Node]) -> None:
        hostnames = {node.name: node.labels.get(names.HOSTNAME, node.name) for node in nodes}
        now = time.monotonic()
        self._left_alone = {uid: end for uid, end in self._left_alone.items() if end > now}
        for write in unfinished(self._pods(), hostnames):
            if write.pod.uid not in self._left_alone:
                self._write([write], "paired")
        pods = aged(self._pods(), self._first_s, time.time(), now)
        self._events.forget({pod.uid for pod in pods})
        waits_s = [time.time() - pod.created_s for pod in pods if pod.waits]
        self._waiting.set(len(waits_s))
        self._longest.set(max(waits_s, default=0.0))
        refused = [node for node in nodes if node.refused]
        self._refused.set(len(refused))
        for node in refused:
            self._events.say_of_node(node.name, "GpusOfferedTwice", node.refused)
        allowed, unread = gpus_allowed(self._quota_mirror.objects())
        others = grouped(self._other_mirror.objects(), lambda item: str(item["node"]))
        decisions = self._looking(
            pods=pods,
            nodes=heard(nodes, self._heard, now),
            ask=self._advice.answers,
            now_s=time.time(),
            allowed=allowed,
            unread=unread,
            others={
                node: functools.reduce(added, (item["requested"] for item in there))
                for node, there in others.items()
            },
            left_alone=self._left_alone,
        ).decide()
        for decision in decisions:
            if isinstance(decision, Stay):
                self._events.say_it_waits(decision.pod, decision.why, held_up=decision.held_up)
                continue
            outcome = "joined" if decision.beside else "alone"
            self._write(decision.writes(), "paired" if len(decision.pods) > 1 else outcome)

    def _pods(self) -> list[Pod]:
        return self._read(self._pod_mirror.objects(), Pod.read)

    def _write(self, writes: list[Write], outcome: str) -> None:
        """Write one pod after the other; where one has changed, the next round looks again."""
        for write in writes:
            if not self._lease.take():  # a long round must not outlast it, nor a slow write
                return
            try:
                self._pod_mirror.put(
                    self._cluster.patch(write.pod.path, write.body, self._lease.left_s)
                )
            except ClusterError as error:
                if error.is_conflict:
                    self._conflicts.inc()
                elif error.status in (400, 403, 422):
                    # A rule or a webhook refuses this pod, perhaps forever: others must not wait,
                    # and it is tried again in a minute.
                    self._left_alone[write.pod.uid] = time.monotonic() + 60.0
                    self._events.say(write.pod, "NotWritten", str(error), kind="Warning")
                else:
                    raise
                return
            self._decided.labels(outcome).inc()
            where = write.gpu_uuid or write.pod.claim
            self._events.say(
                write.pod, "GotGpu", f"{write.share} % of the SMs of {where}: {write.why}"
            )

    def _read(self, items: Iterable[Object], read: Callable[[Object], T]) -> list[T]:
        """Those that can be read, each version once; of others is said once why not."""
        parsed: list[T] = []
        for item in items:
            key = str(part(item, "metadata").get("uid")), item["metadata"].get("resourceVersion")
            try:
                self._now[key] = self._now.get(key) or self._before.get(key) or read(item)
                parsed.append(self._now[key])
            except AdvisorError as error:
                if str(error) not in self._unreadable:
                    self._unreadable.add(str(error))
                    LOG.warning("%s: %s", item.get("metadata", {}).get("name"), error)
        return parsed


def _node_requests(item: Object) -> Object:
    """What is kept of a pod that is none of ours: there may be ten thousand."""
    spec, metadata = part(item, "spec"), part(item, "metadata")
    over = part(item, "status").get("phase") in ("Succeeded", "Failed")
    return {
        "metadata": {key: metadata.get(key) for key in ("uid", "resourceVersion")},
        "node": "" if over else word(spec, "nodeName"),
        "requested": {} if over else requested(spec),
    }


PATIENCE_S = 1.0
"""Of the 2 s that the API server waits; a pod without advice is as it came."""


def adviser(client: Client) -> Advise:
    """Asks one question at a time, and keeps answers for a minute.

    There is none where the service is away or has too much to do.
    """
    advice, lock = Advice(client), threading.Lock()

    def advise(question: Question) -> Answer:
        if not lock.acquire(timeout=PATIENCE_S / 2):
            return NoAnswer("too much is asked at once")
        try:
            return advice.answers([question])[question]
        finally:
            lock.release()

    return advise


class _Gate(Gate):
    """The gate of `advisor serve`, for callers that have no tokens.

    Answers depend on the request alone, so a caller learns nothing and changes nothing. Names
    in Host headers are those of Kubernetes' services, and no browser comes here.
    """

    def __init__(self, app: ASGIApp, *, certified: bool, **more: Any) -> None:
        super().__init__(app, **more)
        self._certified = certified

    async def caller(self, scope: Scope, headers: Mapping[bytes, bytes], address: str) -> Caller:
        if self._certified and scope["path"] == "/mutate" and CERTIFIED not in scope:
            raise HTTPException(
                403, "only callers with a certificate of the API server are answered."
            )
        return ANONYMOUS_READER

    def check_host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        pass


def create_app(
    options: ServeOptions, choosing: Choosing, advise: Advise, host_paths: Sequence[str] = ()
) -> Starlette:
    """The application; its lifespan starts and ends the chooser."""
    metrics = choosing.metrics

    def most_of(path: str) -> Most:
        # The API server takes objects of 1.5 MiB by default; an update has the old one, too.
        return Most(7 * 512 * 1024, 200_000) if path == "/mutate" else QUESTION

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        with choosing.running():
            yield

    app = Starlette(
        routes=[
            Route("/mutate", _mutate(choosing, advise, host_paths), methods=["POST"]),
            _get("/healthz", lambda: _state(choosing.lives, "the chooser has stopped")),
            _get("/readyz", lambda: _state(choosing.ready, "the cluster was not listed yet")),
            _get("/metrics", lambda: Response(metrics.text(), media_type=_PLAIN)),
        ],
        middleware=[
            Middleware(
                _Gate,
                certified=options.client_ca is not None,
                options=options,
                metrics=metrics,
                most_of=most_of,
            )
        ],
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.metrics = metrics
    answer_errors(app)
    return app


def _mutate(
    choosing: Choosing, advise: Advise, host_paths: Sequence[str]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        answer = functools.partial(
            review, read_object(body), choosing.username, host_paths,
            is_full=choosing.is_full, advise=advise,
        )  # fmt: skip
        # All others need no service, and take a millisecond.
        return JSONResponse(
            await asyncio.to_thread(answer) if names.PLACED_BY.encode() in body else answer()
        )

    return endpoint


def _get(path: str, answer: Callable[[], Response]) -> Route:
    async def endpoint(_: Request) -> Response:
        return answer()

    return Route(path, endpoint, methods=["GET"])


def _state(good: bool, otherwise: str) -> Response:
    if not good:
        raise HTTPException(503, f"{otherwise}.")
    return JSONResponse({"status": "ok"})
