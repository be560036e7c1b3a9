"""Prometheus pages: of which servers they are known, and how a job counts there.

A known server is found by the command line that starts it. Counter and latencies go from its page
into the progress file of the job.
"""

import difflib
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from advisor.errors import InputError, JobError, SourceError, TooMuchError
from advisor.progress import LATENCY_STEP, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPreset:
    """A server, and how its work is counted.

    Attributes:
        starts: Command lines that start it: a program or a module, and a subcommand.
        others: Subcommands of the same program that serve no such page.
        ports: Options that set the port of the page; the last one given wins.
        port: The default port.
        hosts: Options that set the address of the page.
        path: Path of the page.
        config: Options that name a file, which may set the port.
        needs: Options without which there is no page.
        off: Options with which no page is at that address; `--x=false`: where x is false.
        counter: Name on the page; None where the server has no Prometheus page.
        unit: Unit of the counter.
        histogram: Request latency, without `_bucket`.
    """

    starts: tuple[str, ...]
    others: tuple[str, ...] = ()
    ports: tuple[str, ...] = ("--port",)
    port: int
    hosts: tuple[str, ...] = ("--host",)
    path: str = "/metrics"
    config: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    counter: str | None
    unit: str = "tokens"
    histogram: str | None = None


SERVERS = (
    # vllm-project/vllm: vllm/entrypoints/openai/cli_args.py (--port, --uds, --ssl-keyfile),
    # vllm/entrypoints/cli/serve.py (--headless, --grpc, --disable-log-stats),
    # docs/configuration/serve_args.md (--config); names in vllm/v1/metrics/loggers.py.
    ServerPreset(
        starts=(
            "vllm serve",
            "vllm.entrypoints.openai.api_server",
            "vllm.entrypoints.cli.main serve",
        ),
        port=8000,
        config=("--config",),
        off=("--uds", "--headless", "--grpc", "--ssl-keyfile", "--disable-log-stats"),
        counter="vllm:generation_tokens_total",
        histogram="vllm:e2e_request_latency_seconds",
    ),
    # sgl-project/sglang: docs/advanced_features/server_arguments.md (--port, --config),
    # docs/references/production_metrics.md (--enable-metrics and the names);
    # python/sglang/cli/main.py (serve).
    ServerPreset(
        starts=("sglang.launch_server", "sglang serve"),
        port=30000,
        config=("--config",),
        needs=("--enable-metrics",),
        counter="sglang:generation_tokens_total",
        histogram="sglang:e2e_request_latency_seconds",
    ),
    # triton-inference-server/server: src/command_line_parser.cc, docs/user_guide/metrics.md.
    ServerPreset(
        starts=("tritonserver",),
        ports=("--metrics-port",),
        port=8002,
        hosts=("--metrics-address", "--http-address"),
        off=("--allow-metrics=false",),
        counter="nv_inference_count",
        unit="inferences",
    ),
    # huggingface/text-generation-inference: launcher/src/main.rs (-p, --port), router/src/server.rs
    # (/metrics is on that port: --prometheus-port is taken and not listened on).
    ServerPreset(
        starts=("text-generation-launcher", "text-generation-router"),
        ports=("-p", "--port"),
        port=3000,
        hosts=("--hostname",),
        counter="tgi_request_generated_tokens_sum",
        histogram="tgi_request_duration",
    ),
    # huggingface/text-embeddings-inference: router/src/main.rs (-p, --port),
    # router/src/http/server.rs (/metrics on that port and the names).
    ServerPreset(
        starts=("text-embeddings-router",),
        ports=("-p", "--port"),
        port=3000,
        hosts=("--hostname",),
        counter="te_request_success",
        unit="requests",
        histogram="te_request_duration",
    ),
    # ggml-org/llama.cpp: tools/server/README.md.
    ServerPreset(
        starts=("llama-server",),
        port=8080,
        needs=("--metrics",),
        off=("--ssl-key-file", "--api-prefix"),
        counter="llamacpp:tokens_predicted_total",
    ),
    # NVIDIA/TensorRT-LLM: tensorrt_llm/commands/serve.py (--port, subcommands),
    # tensorrt_llm/serve/openai_server.py (/metrics is JSON; the Prometheus page is there where
    # return_perf_metrics is true), tensorrt_llm/metrics/collector.py (names).
    ServerPreset(
        starts=("trtllm-serve", "tensorrt_llm.commands.serve"),
        others=("grpc", "disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve"),
        port=8000,
        path="/prometheus/metrics",
        counter="trtllm_request_success_total",
        unit="requests",
        histogram="trtllm_e2e_request_latency_seconds",
    ),
    # InternLM/lmdeploy: lmdeploy/cli/serve.py (--server-port, --disable-metrics; with --proxy-url
    # the port may be chosen by the server), lmdeploy/metrics/loggers.py (names).
    ServerPreset(
        starts=("lmdeploy serve api_server",),
        ports=("--server-port",),
        port=23333,
        hosts=("--server-name",),
        config=("--proxy-url",),
        off=("--disable-metrics",),
        counter="lmdeploy:generation_tokens_total",
        histogram="lmdeploy:e2e_request_latency_seconds",
    ),
    # pytorch/serve: docs/metrics_api.md, docs/metrics.md (the names; only where metrics_mode is
    # prometheus or legacy), docs/configuration.md (metrics_address is set in a file alone).
    ServerPreset(
        starts=("torchserve",),
        ports=(),
        port=8082,
        config=("--ts-config",),
        off=("--stop",),
        counter="ts_inference_requests_total",
        unit="requests",
    ),
    # ollama/ollama: envconfig/config.go (OLLAMA_HOST); its source has no Prometheus page.
    ServerPreset(starts=("ollama serve",), ports=(), port=11434, counter=None),
)


def server_of(command: Sequence[str]) -> tuple[ServerPreset, str | None] | None:
    """The server that a command line starts, and the URL of its page.

    None: it starts none that is known. The URL is None where the command line does not tell the
    port, turns the page off, or puts it at another address than 127.0.0.1.
    """
    program, words = _program_of(command)
    for server in SERVERS:
        for start in server.starts:
            name, *subcommands = start.split()
            length = len(subcommands)
            # By its file, or as a module by its path.
            as_module = "." in name and program.endswith(f"/{name.replace('.', '/')}.py")
            runs = as_module or program.rpartition("/")[2] == name
            serves_no_page = bool(words) and words[0] in server.others
            if runs and words[:length] == subcommands and not serves_no_page:
                return server, _url(server, words[length:])
    return None


def _url(server: ServerPreset, words: Sequence[str]) -> str | None:
    if (
        server.counter is None
        or not all(_given(words, option) for option in server.needs)
        or any(_given(words, option) for option in server.off)
        # A server with these addresses answers at 127.0.0.1.
        or not {*_values(words, server.hosts)} <= {"127.0.0.1", "localhost", "0.0.0.0", "::"}
    ):
        return None
    default = "" if any(_given(words, option) for option in server.config) else f"{server.port}"
    port = [default, *_values(words, server.ports)][-1]
    # 0 lets the kernel choose, and $PORT is known to the shell alone.
    if not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16):
        return None
    return f"http://127.0.0.1:{int(port)}{server.path}"


def _given(words: Sequence[str], option: str) -> bool:
    name, is_boolean, _ = option.partition("=")
    values = [*_values(words, (name,))]
    return bool(values) and (not is_boolean or values[-1].lower() in ("false", "off", "0"))


def _values(words: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """Values of options in the order given: behind it, after `=`, or of a short one attached."""
    for n, word in enumerate(words):
        name, has_value, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")  # as argparse in vLLM takes them
        if name in options:
            yield value if has_value else next(iter(words[n + 1 :]), "")
        elif word[:2] in options and word[2:].isdecimal():
            yield word[2:]


_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)

# Programs that run another one: how many words stand before it, and which options take a value.
_WRAPPERS: dict[str, tuple[int, str]] = {
    "chrt": (1, "-T -P -D"),
    "command": (0, ""),
    "conda run": (0, "-n --name -p --prefix --cwd"),
    "dumb-init": (0, "-r --rewrite"),
    "env": (0, "-u --unset -C --chdir"),
    "exec": (0, "-a"),
    "ionice": (0, "-c --class -n --classdata"),
    "mamba run": (0, "-n --name -p --prefix --cwd"),
    "micromamba run": (0, "-n --name -p --prefix --cwd"),
    "nice": (0, "-n --adjustment"),
    "nohup": (0, ""),
    "numactl": (
        0,
        "-i --interleave -p --preferred -P --preferred-many -m --membind -N --cpunodebind "
        "-C --physcpubind",
    ),
    "pipenv run": (0, ""),
    "pixi run": (0, "-e --environment --manifest-path"),
    "poetry run": (0, ""),
    "setsid": (0, ""),
    "stdbuf": (0, "-i --input -o --output -e --error"),
    "sudo": (0, "-u --user -g --group -D --chdir"),
    "taskset": (1, ""),
    "time": (0, "-f --format -o --output"),
    "timeout": (1, "-s --signal -k --kill-after"),
    "tini": (0, "-p -e"),
    "trtllm-llmapi-launch": (0, ""),
    "uv run": (0, "--with --extra --group --package -p --python --project --directory --env-file"),
    "uvx": (0, "--with --from -p --python"),
}


_SUFFIX = re.compile(r"_(total|sum|count|bucket)$")
_TYPE = re.compile(rb"^# TYPE (\S+) (?:counter|histogram)", re.MULTILINE)

# The parser takes a time that grows with the square of a line.
_LONGEST_LINE = 16 * 2**10

# Of what is parsed, half a second for each MiB; and most names that one is looked for among.
_MOST_PARSED, _MOST_NAMES = 2 * 2**20, 500

# Beyond it a float does not tell two counts apart.
_LARGEST_COUNT = 2.0**53

# By the end of a histogram's name; seconds are what Prometheus asks for.
_SECONDS = {"_us": 1e-6, "_microseconds": 1e-6, "_ms": 1e-3, "_milliseconds": 1e-3}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a page says of a job.

    Attributes:
        counts: The counter of each label set that is counted.
        buckets: Upper bounds, s, each with how many requests did not exceed it; the last bound is
            infinite. Empty where no histogram is wanted, or the page has none yet.
    """

    counts: Mapping[str, float]
    buckets: tuple[tuple[float, float], ...] = ()

    @property
    def total(self) -> float:
        """Sum of the counts."""
        return sum(self.counts.values())


class SeriesTotal:
    """Sum of counters over restarts of their server, as Prometheus sees them.

    A counter that went back began again at 0. One that is missing adds nothing until it is back.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self._last: dict[str, float] = {}

    def add(self, counts: Mapping[str, float]) -> float:
        """Take a reading over; the total since the first counter began."""
        for series, now in counts.items():
            before = self._last.get(series, 0.0)
            self.total += now - before if now >= before else now
            self._last[series] = now
        if len(self._last) > 10_000:  # a server may show others each time
            self._last = {**counts}
        return self.total


def parse_selector(text: str) -> Sample:
    """A name, and labels that samples must have: `vllm:generation_tokens_total{engine="0"}`.

    Raises:
        InputError: it is none.
    """
    with InputError.instead_of(
        (SourceError, ValueError),
        f"{text!r} is no name of a metric",
        fix='write it as the page does: name, or name{label="value"}',
    ):
        ((_, sample),) = typed_samples([f"{text} 1"])
    return sample


def read_page(page: bytes, counter: Sample, histogram: Sample | None) -> Reading:
    """What the page says.

    Raises:
        SourceError: it has no such counter, or no such histogram, now.
        JobError, TooMuchError: what has the name cannot be counted by.
    """
    samples = [*_samples(page, counter)]
    if not samples:
        names = sorted({name.decode(errors="replace") for name in _TYPE.findall(page)})
        near = difflib.get_close_matches(counter.name, names[:_MOST_NAMES], 3, 0.5) or names[:3]
        labels = " with these labels" if counter.labels else ""
        raise SourceError(
            f"the page has no counter {counter.name}{labels}",
            why=f"near ones: {', '.join(near)}" if near else "it has no counters at all",
            fix="some servers show it with their first request only",
        )
    for kind, name, sample in samples:
        if kind not in ("counter", "unknown") and not (
            kind in ("histogram", "summary") and name.endswith(("_sum", "_count"))
        ):
            raise JobError(
                f"{counter.name} is a {kind}, not a counter",
                why="what goes up and down tells no progress",
                fix="name a counter; its name mostly ends in _total",
            )
        if not 0 <= sample.value < _LARGEST_COUNT:
            raise JobError(f"{counter.name} is {sample.value}, which is no count")
    if counter.name.startswith("nv_inference_") and "model" not in counter.labels:
        counts = _without_parts(sample for _, _, sample in samples)
    else:
        counts = dict[str, float]()
        for _, _, sample in samples:
            series = f"{sorted(sample.labels.items())}"
            counts[series] = counts.get(series, 0.0) + sample.value
    return Reading(counts, _buckets(page, histogram) if histogram else ())


def _without_parts(samples: Iterable[Any]) -> dict[str, float]:
    """Requests to Triton, where each request to an ensemble counts at its parts as well.

    The page does not name the parts. An ensemble has no GPU (triton-inference-server/core,
    src/ensemble_scheduler/ensemble_scheduler.cc: METRIC_REPORTER_ID_CPU), and each of its requests
    runs each part once. So where models without a GPU stand beside models with one:

    - A model with a GPU that counts less than each of these is part of none: it counts by itself.
    - All others count as one, with the most that the sums can mean: at least the largest model,
      and at most the models without a GPU together, each request of which reaches some GPU.

    Assumed is that a model without a GPU is an ensemble or the first step of one. Calls of a part
    past its ensemble count only where they outnumber it; `nv_inference_count{model="NAME"}` counts
    one model alone. Versions and GPUs of a model are summed.
    """
    models, on_gpu = dict[str, float](), set[str]()
    for sample in samples:
        model = f"{sample.labels.get('namespace', '')}/{sample.labels.get('model', '')}"
        models[model] = models.get(model, 0.0) + sample.value
        if "gpu_uuid" in sample.labels:
            on_gpu.add(model)
    # A model with a GPU has a series without one as well, which stays 0 (core, src/model.cc).
    entries = [n for model, n in models.items() if n and model not in on_gpu]
    if not entries or not on_gpu:
        return models
    alone = {model: models[model] for model in on_gpu if models[model] < min(entries)}
    together = min(sum(entries), sum(models[model] for model in on_gpu))
    largest = max(n for model, n in models.items() if model not in alone)
    return {**alone, "ensembles": max(together, largest)}


def _buckets(page: bytes, histogram: Sample) -> tuple[tuple[float, float], ...]:
    wanted = histogram._replace(name=f"{histogram.name}_bucket")
    kinds, sums = set[str](), dict[float, float]()
    scale = next((s for end, s in _SECONDS.items() if histogram.name.endswith(end)), 1.0)
    for kind, _, sample in _samples(page, wanted):
        kinds.add(kind)
        text = sample.labels.get("le", "")
        try:
            bound = scale * float(text)
        except ValueError as error:
            raise JobError(f"a bucket ends at le={text[:100]!r}, which is no number") from error
        sums[bound] = sums.get(bound, 0.0) + sample.value
    declared = re.search(
        rb"^# TYPE %b (\S+)" % re.escape(histogram.name.encode()), page, re.MULTILINE
    )
    is_other = declared is not None and declared[1] not in (b"histogram", b"untyped", b"unknown")
    if kinds - {"histogram", "unknown"} or is_other:
        raise JobError(f"{histogram.name} is no histogram")
    buckets = tuple(sorted(sums.items()))
    counts = [count for _, count in buckets]
    if buckets and (buckets[-1][0] != math.inf or not counts[0] >= 0 or counts != sorted(counts)):
        raise JobError(f"the buckets of {histogram.name} are no cumulative ones up to +Inf")
    if not all(count < _LARGEST_COUNT for count in counts):
        raise JobError(f"{histogram.name} has a count that is not finite")
    return buckets


def _samples(page: bytes, wanted: Sample) -> Iterator[tuple[str, str, Any]]:
    """Type, name and sample of all that are meant; only lines of the family are parsed."""
    stem = _SUFFIX.sub("", wanted.name).encode()
    lines = (ln for ln in page.split(b"\n") if ln.startswith((stem, b"# TYPE " + stem)))
    # The parser ends each counter with _total, as OpenMetrics wants it.
    names = (wanted.name, f"{wanted.name}_total")
    yield from (
        (kind, sample.name, sample)
        for kind, sample in typed_samples(line.decode(errors="replace") for line in lines)
        if sample.name in names and wanted.labels.items() <= sample.labels.items()
    )


def typed_samples(lines: Iterable[str]) -> list[tuple[str, Any]]:
    """Type and sample of each row of a metrics text.

    Raises:
        TooMuchError: there is more of it than is parsed.
        SourceError: it is no metrics text.
    """
    text = "".join(f"{line}\n" for line in lines)
    if max(map(len, text.split("\n"))) > _LONGEST_LINE:
        raise TooMuchError(f"the page has a line of more than {_LONGEST_LINE} characters")
    if len(text) > _MOST_PARSED:
        raise TooMuchError(f"the page has more than {_MOST_PARSED} characters to parse")
    try:
        return [
            (family.type, sample._replace(value=float(sample.value)))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]
    except Exception as error:  # whatever a library makes of foreign data
        raise SourceError("the page is no metrics text", why=str(error)[:200]) from error


# Its multiples, without the whole part, lie evenly however few or many of them are taken in a row
# (Knuth, The Art of Computer Programming, volume 3, section 6.4).
_GOLDEN = (math.sqrt(5) - 1) / 2


class PageMirror:
    """Writes readings into a progress file; counters that went back started again.

    Buckets of servers are wide and those of a progress file 5 % apart, so requests of one bucket
    are spread evenly over it: percentiles are then linear within a bucket, as those of Prometheus.
    Of requests beyond the last bound nothing else is known: they count as 5 % above it.

    Args:
        promised_ms: The p99 that is promised of the job.
    """

    def __init__(self, progress: Progress, promised_ms: float | None = None) -> None:
        self._progress, self._promised_ms = progress, promised_ms
        self._total, self._counted = SeriesTotal(), 0
        self._buckets: tuple[tuple[float, float], ...] = ()

    def take(self, reading: Reading) -> None:
        """Take a reading over.

        Raises:
            JobError: the buckets do not reach a promised latency.
        """
        before, self._counted = self._counted, int(self._total.add(reading.counts))
        self._progress.add(self._counted - before)
        if reading.buckets:
            self._take_latencies(reading.buckets)

    def _take_latencies(self, buckets: tuple[tuple[float, float], ...]) -> None:
        last_ms = 1000 * max((bound for bound, _ in buckets if bound < math.inf), default=0.0)
        if self._promised_ms is not None and self._promised_ms > last_ms:
            raise JobError(
                f"a p99 of {self._promised_ms:g} ms is promised, and the last bucket of the "
                f"histogram ends at {last_ms:g} ms",
                why="beyond it nothing is known",
                fix="give the server larger buckets, or promise less",
            )
        before, bounds_s = dict(self._buckets), [bound_s for bound_s, _ in buckets]
        if bounds_s != [*before]:
            self._progress.bounded(bounds_s)
        counts = [round(count) for _, count in buckets]
        earlier = [round(before.get(bound_s, 0.0)) for bound_s in bounds_s]
        # What one bucket has is the difference to the one below it.
        new, old = _differences(counts), _differences(earlier)
        if any(now < then for now, then in zip(new, old, strict=True)):
            old = [0] * len(new)  # the server started again
        for bounds, then, now in zip(pairwise([0.0, *bounds_s]), old, new, strict=True):
            self._spread(bounds, then, now)
        self._buckets = buckets

    def _spread(self, bounds_s: tuple[float, float], earlier: int, now: int) -> None:
        low_s, high_s = max(bounds_s[0], 0.0), bounds_s[1]
        if high_s == math.inf:
            low_s = high_s = low_s * LATENCY_STEP
        # So many different latencies are taken from one bucket in one reading.
        for first, after in pairwise([*range(earlier, now, 1 + (now - earlier) // 1000), now]):
            self._progress.took(low_s + (high_s - low_s) * (first * _GOLDEN % 1), after - first)


def _program_of(command: Sequence[str]) -> tuple[str, list[str]]:
    """The program or module that a command line comes to, and its arguments; "" for none."""
    words = [*command]
    while words:
        name = words[0].rpartition("/")[2].lstrip("-")
        with_subcommand = " ".join((name, *words[1:2]))
        if _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        elif _PYTHON.fullmatch(name):
            return _of_python(words[1:])
        elif name in ("sh", "bash", "dash", "zsh", "ksh"):
            words = _of_shell(words[1:])
        elif name in _WRAPPERS:
            words = _behind(words[1:], *_WRAPPERS[name])
        elif with_subcommand in _WRAPPERS:
            words = _behind(words[2:], *_WRAPPERS[with_subcommand])
        else:
            return words[0], words[1:]
    return "", []


def _behind(words: list[str], before: int, valued: str) -> list[str]:
    """What stands behind a wrapper's own options and its first words."""
    words, takes_value = [*words], valued.split()
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "--":
            break
        if option in takes_value:
            words = words[1:]
    return words[before:]


def _of_python(words: list[str]) -> tuple[str, list[str]]:
    """The script or module that an interpreter runs, and its arguments; words are taken out."""
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            return word, words
        if word == "--check-hash-based-pycs":
            words = words[1:]
        letters = "" if word.startswith("--") else word[1:]
        # One word may hold several options, of which the last one takes the rest or the next word.
        if (n := next((n for n, letter in enumerate(letters) if letter in "cmWX"), None)) is None:
            continue
        value = letters[n + 1 :] or (words.pop(0) if words else "")
        if letters[n] in "cm":
            return (value if letters[n] == "m" else ""), words
    return "", []


def _of_shell(words: list[str]) -> list[str]:
    """The last command of `sh -c SCRIPT`, up to what is done with its output; [] for a file.

    Words are taken out.
    """
    while words and words[0][:1] in ("-", "+"):
        option = words.pop(0)
        if "c" in option and not option.startswith("--"):
            break
        if option.endswith("o"):  # as in -euo pipefail
            words = words[1:]
    else:
        return []
    while words and words[0].startswith("-"):
        words = words[1:]
    script = words[0] if words else ""
    lexer = shlex.shlex(
        script.replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=True
    )
    lexer.whitespace_split, lexer.commenters = True, ""
    command, ended = list[str](), False
    try:
        for token in lexer:
            if token in ("&&", ";"):
                command, ended = [], False
            elif token and {*"();<>|&"}.issuperset(token):
                ended = True
            elif not ended:
                command.append(token)
    except ValueError:  # an open quote
        return []
    return command


def _differences(counts: list[int]) -> list[int]:
    return [after - before for before, after in pairwise([0, *counts])]
