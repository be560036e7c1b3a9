"""A Prometheus over real HTTP that knows the queries of an audit, with the samples of a test."""

import json
import math
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from scripted_http import Reply, Seen, scripted_http

Samples = Sequence[tuple[Mapping[str, str], Sequence[tuple[float, float]]]]
"""Labels with `__name__`, and the samples of each series: time and value."""

_OVER = re.compile(r'(avg|max)_over_time\((\w+)\{(\w+)=~"(.*)"\}\[(\d+)s\]\)')


@dataclass
class MetricsServer:
    """What it has, what it was asked, and how it fails.

    Attributes:
        refuse: Answers of the next requests, before it answers as it should.
        most_samples: In one answer; more are refused as Prometheus does.
        token: What it wants to see; empty: nothing.
    """

    samples: Samples
    url: str = ""
    refuse: list[int] = field(default_factory=list[int])
    most_samples: int = 10**9
    token: str = ""
    asked: list[str] = field(default_factory=list[str])

    def reply(self, seen: Seen) -> Reply:
        path, _, query = seen.path.partition("?")
        given = parse_qs(seen.body or query)
        self.asked.append(given.get("query", [path])[0])
        if self.refuse:
            return Reply(status=self.refuse.pop(0), body={})
        if self.token and seen.headers.get("Authorization") != f"Bearer {self.token}":
            return Reply(status=401, body={})
        return self._answer(path, given)

    def _answer(self, path: str, given: Mapping[str, Sequence[str]]) -> Reply:
        asked = [*given.get("match[]", []), *given.get("query", [])]
        if any(re.search(r"__name__\s*[=!]~", one) for one in asked):
            # What Google's managed Prometheus says (GoogleCloudPlatform/prometheus-engine).
            said = "invalid selector: exact matcher on __name__ required"
            failed = {"status": "error", "errorType": "bad_data", "error": said}
            return Reply(status=400, body=failed)
        name, _, beside = given.get("match[]", [""])[0].partition("{")
        label = beside.partition("!=")[0]
        named = [
            one
            for one, _ in self.samples
            if (not name or one["__name__"] == name) and (not label or one.get(label))
        ]
        if path == "/api/v1/labels":
            assert name, "labels of which metric?"
            return _good(sorted({label for one in named for label in one}))
        if found := re.fullmatch(r"/api/v1/label/(\w+)/values", path):
            assert name or found[1] == "__name__", "a label of which metric?"
            return _good(sorted({labels.get(found[1], "") for labels in named} - {""}))
        if path == "/api/v1/series":
            return _good([one for one, _ in self.samples if one["__name__"] in asked])
        assert path == "/api/v1/query_range", path
        return self._range(given["query"][0], *(float(given[n][0]) for n in ("start", "end")))

    def _range(self, query: str, start_s: float, end_s: float) -> Reply:
        match = _OVER.fullmatch(query)
        assert match, query
        over, name, label, quoted, step = match.groups()
        which = json.loads(f'"{quoted}"')
        step_s, result, count = float(step), list[Any](), 0
        for labels, samples in self.samples:
            if labels["__name__"] != name or not re.fullmatch(which, labels.get(label, "")):
                continue
            cells: dict[float, list[float]] = {}
            for t, value in samples:
                at = start_s + step_s * math.ceil((t - start_s) / step_s - 1e-9)
                if start_s - 1e-6 <= at <= end_s + 1e-6:
                    cells.setdefault(at, []).append(value)
            values = [
                [t, str(max(v) if over == "max" else sum(v) / len(v))]
                for t, v in sorted(cells.items())
            ]
            count += len(values)
            if values:
                kept = {k: v for k, v in labels.items() if k != "__name__"}
                result.append({"metric": kept, "values": values})
        if count > self.most_samples:
            said = "query processing would load too many samples into memory in query execution"
            failed = {"status": "error", "errorType": "execution", "error": said}
            return Reply(status=422, body=failed)
        return _good({"resultType": "matrix", "result": result})


def _good(data: Any) -> Reply:
    return Reply(body={"status": "success", "data": data})


@contextmanager
def metrics_server(samples: Samples) -> Generator[MetricsServer]:
    state = MetricsServer(samples)
    with scripted_http(state.reply) as server:
        state.url = server.url
        yield state
