"""Known servers with a Prometheus page, found by the command line that starts them."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
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
    KnownServer(
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
    KnownServer(
        starts=("sglang.launch_server", "sglang serve"),
        port=30000,
        config=("--config",),
        needs=("--enable-metrics",),
        counter="sglang:generation_tokens_total",
        histogram="sglang:e2e_request_latency_seconds",
    ),
    # triton-inference-server/server: src/command_line_parser.cc, docs/user_guide/metrics.md.
    KnownServer(
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
    KnownServer(
        starts=("text-generation-launcher", "text-generation-router"),
        ports=("-p", "--port"),
        port=3000,
        hosts=("--hostname",),
        counter="tgi_request_generated_tokens_sum",
        histogram="tgi_request_duration",
    ),
    # huggingface/text-embeddings-inference: router/src/main.rs (-p, --port),
    # router/src/http/server.rs (/metrics on that port and the names).
    KnownServer(
        starts=("text-embeddings-router",),
        ports=("-p", "--port"),
        port=3000,
        hosts=("--hostname",),
        counter="te_request_success",
        unit="requests",
        histogram="te_request_duration",
    ),
    # ggml-org/llama.cpp: tools/server/README.md.
    KnownServer(
        starts=("llama-server",),
        port=8080,
        needs=("--metrics",),
        off=("--ssl-key-file", "--api-prefix"),
        counter="llamacpp:tokens_predicted_total",
    ),
    # NVIDIA/TensorRT-LLM: tensorrt_llm/commands/serve.py (--port, subcommands),
    # tensorrt_llm/serve/openai_server.py (/metrics is JSON; the Prometheus page is there where
    # return_perf_metrics is true), tensorrt_llm/metrics/collector.py (names).
    KnownServer(
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
    KnownServer(
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
    KnownServer(
        starts=("torchserve",),
        ports=(),
        port=8082,
        config=("--ts-config",),
        off=("--stop",),
        counter="ts_inference_requests_total",
        unit="requests",
    ),
    # ollama/ollama: envconfig/config.go (OLLAMA_HOST); its source has no Prometheus page.
    KnownServer(starts=("ollama serve",), ports=(), port=11434, counter=None),
)


def server_of(command: Sequence[str]) -> tuple[KnownServer, str | None] | None:
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
            if not runs or words[:length] != subcommands:
                continue
            if not words or words[0] not in server.others:
                return server, _url(server, words[length:])
    return None


def _url(server: KnownServer, words: Sequence[str]) -> str | None:
    needed = all(_given(words, option) for option in server.needs)
    if server.counter is None or not needed or any(_given(words, one) for one in server.off):
        return None
    # A server with these addresses answers at 127.0.0.1.
    if not {*_values(words, server.hosts)} <= {"127.0.0.1", "localhost", "0.0.0.0", "::"}:
        return None
    if ports := [*_values(words, server.ports)]:
        port = ports[-1]
    else:
        port = "" if any(_given(words, one) for one in server.config) else f"{server.port}"
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
_PUNCTUATION = frozenset("();<>|&")

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
"""Programs that run another one: how many words stand before it, and which options take a value."""


def _program_of(command: Sequence[str]) -> tuple[str, list[str]]:
    """The program or module that a command line comes to, and its arguments; "" for none."""
    words = [*command]
    while words:
        if _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
            continue
        name = words[0].rpartition("/")[2].lstrip("-")
        with_subcommand = " ".join((name, *words[1:2]))
        if _PYTHON.fullmatch(name):
            return _of_python(words[1:])
        if name in ("sh", "bash", "dash", "zsh", "ksh"):
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
    """The script or module that an interpreter runs, and its arguments."""
    words = [*words]
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
    """The last command of `sh -c SCRIPT`, up to what is done with its output; [] for a file."""
    words = [*words]
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
            elif token and _PUNCTUATION.issuperset(token):
                ended = True
            elif not ended:
                command.append(token)
    except ValueError:  # an open quote
        return []
    return command
