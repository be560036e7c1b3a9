"""The loop of `advisor slurm match`: looks at the queue, decides, and tells Slurm."""

import logging
import threading
import time
from collections.abc import Mapping

from advisor.client import Client
from advisor.errors import AdvisorError
from advisor_node.advice import Advice
from advisor_node.slurm.matching.books import books
from advisor_node.slurm.matching.cluster import (
    Partition,
    SiteSettings,
    SlurmNode,
    read_nodes,
    read_partitions,
    write_facts,
)
from advisor_node.slurm.matching.decide import Change, QueueRound
from advisor_node.slurm.matching.meetings import with_places
from advisor_node.slurm.matching.queued import SlurmTask, read_queue
from advisor_node.slurm.matching.slurm import SlurmCommand, ask

LOG = logging.getLogger("advisor.node")

LOOK_S = 2.0

SITE_S = 20.0
"""How often the site is looked at: partitions, nodes, books. The plugin waits 30 s for it."""


def run_match(settings: SiteSettings, client: Client, stop: threading.Event) -> None:
    """Look at the queue until `stop` is set. Whatever fails is tried again at the next look."""
    matching, said = Matching(settings, Advice(client)), ""
    while not stop.is_set():
        try:
            matching.look()
            trouble = ""
        except AdvisorError as error:
            trouble = str(error)
        if trouble and trouble != said:
            LOG.warning("%s", trouble)
        said = trouble
        stop.wait(LOOK_S)


class Matching:
    """One controller.

    Args:
        advice: What the service says of pairs.
        ask: Runs Slurm's commands.
    """

    def __init__(self, settings: SiteSettings, advice: Advice, ask: SlurmCommand = ask) -> None:
        self._settings, self._advice, self._ask = settings, advice, ask
        self._seen_s = -SITE_S
        self._books = ""
        self._partitions: Mapping[str, Partition] = {}

    def look(self) -> None:
        """Look once.

        Raises:
            SourceError: Slurm does not answer.
        """
        jobs = read_queue(self._ask)
        waiting = any(job.undecided or job.part for job in jobs)
        nodes: Mapping[str, SlurmNode] = {}
        if waiting or self._is_due():
            nodes = read_nodes(self._ask)
        if self._is_due():
            self._look_at_site(nodes)
        if waiting and self._books == "ok":
            for change in self._round(jobs, nodes).decide():
                self._tell(change)

    def _is_due(self) -> bool:
        return time.monotonic() - self._seen_s >= SITE_S

    def _look_at_site(self, nodes: Mapping[str, SlurmNode]) -> None:
        found = books(self._ask)
        if found != self._books:
            LOG.log(
                logging.INFO if found == "ok" else logging.WARNING,
                "the books: %s",
                found if found == "ok" else f"no job is rewritten: {found}",
            )
        self._books, self._partitions = found, read_partitions(self._ask)
        write_facts(self._settings, found, self._partitions, list(nodes.values()), time.time())
        self._seen_s = time.monotonic()

    def _round(self, jobs: list[SlurmTask], nodes: Mapping[str, SlurmNode]) -> QueueRound:
        return QueueRound(
            jobs=with_places(jobs, nodes),
            nodes=nodes,
            partitions=self._partitions,
            ask=self._advice.answers,
            sets=self._advice.sets,
            now_s=time.time(),
            wait_s=self._settings.wait_s,
            model=self._settings.gpu_model,
        )

    def _tell(self, change: Change) -> None:
        """A job that has begun or ended meanwhile stays as it is."""
        words = [
            f"JobId={change.job.key}",
            f"Gres=mps:{change.counted}",
            f"Comment={change.named.in_comment(change.job.comment)}",
            f"AdminComment=advisor: {change.why}",
        ]
        if change.starts_in_s is not None:
            words.append(f"StartTime=now+{change.starts_in_s}")
        if change.limit_min is not None:
            words.append(f"TimeLimit={change.limit_min}")
        if change.node is not None:
            words.append(f"ReqNodeList={change.node}")
        try:
            self._ask("scontrol", "update", *words)
        except AdvisorError as error:
            LOG.warning("job %s: %s", change.job.key, error)
        else:
            LOG.info("job %s: %s", change.job.key, change.why)
