"""Launches pairs on this host's GPU and prints what was predicted beside what was observed.

Each pair runs at the split that is recommended, at 50/50 and without limits, one after the other on
one card; then at the recommended split once more, asked for over HTTP.

    python docs/measurements/launch_pairs.py --json launch-pairs.json > launch-pairs.md
    python docs/measurements/launch_pairs.py --recorded docs/measurements/launch-pairs.json
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from advisor.client import Client
from advisor.formats.rows import to_row
from advisor.wire.launch_request import LaunchRequest

PAIRS = (
    ("fft", "resnet50-train"),
    ("bert-train", "embedding"),
    ("llm-decode", "matmul-bf16"),
    ("sorting", "vit-infer"),
    ("triad", "whisper-infer"),
    ("gemm", "mobilenet-infer"),
)

HEADINGS = (
    "pair", "asked by", "way", "SMs proven", "rate of first: predicted, observed",
    "rate of second: predicted, observed", "W: predicted, observed",
    "work per kJ: predicted, observed", "energy, kJ", "together, s",
)  # fmt: skip

_READY_S = 60


def main() -> None:
    """Print a table, one line as soon as each launch is over."""
    options = _options()
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}", flush=True)
    if options.recorded:
        seen = [_tell(o["door"], o) for o in json.loads(options.recorded.read_text())]
    else:
        seen = _measure(options)
    _gains(seen)
    _errors([o for o in seen if o["recommended"] and not _unsafe(o)])
    if options.json:
        options.json.write_text(json.dumps(seen, indent=1) + "\n")


def _measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    pairs = [tuple(text.split("+")) for text in options.pairs] or PAIRS
    seen: list[dict[str, Any]] = []
    for a, b in pairs:
        ways = (None, "50/50", "uncapped")
        seen += [_tell("command", _launch(a, b, split, options)) for split in ways]
    with _service(options) as client:
        seen += [_tell("HTTP", _launch_by_http(client, a, b, options)) for a, b in pairs]
    return seen


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", help="A+B; else six of the bundled jobs")
    parser.add_argument("--gpu", default="0")
    parser.add_argument("--duration", type=float, default=20, help="seconds of each launch")
    parser.add_argument("--json", type=Path, help="write all observations here")
    parser.add_argument(
        "--recorded", type=Path, help="observations of another time; launch nothing"
    )
    return parser.parse_args()


def _launch(a: str, b: str, split: str | None, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "advisor_cli", "launch", a, b, "--json"]
    command += ["--gpu", options.gpu, "--duration", str(options.duration)]
    command += ["--split", split] if split else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if done.returncode != 0:
        raise SystemExit(f"{a} + {b} at {split}: {json.dumps(last)}")
    (observation,) = last["observations"]
    return {**observation, "recommended": split is None}


def _launch_by_http(client: Client, a: str, b: str, options: argparse.Namespace) -> dict[str, Any]:
    asked = LaunchRequest.of(a, b, gpu=options.gpu, duration_s=options.duration)
    status = client.launch(asked)
    status = client.wait(status.launch_id, timeout_s=options.duration + 180)
    if status.state == "failed":
        raise SystemExit(f"{a} + {b}: {status.code}: {status.cause}")
    for _ in range(50):
        found = [o for o in client.observations(job=a) if o.launch_id == status.launch_id]
        if found:
            return {**to_row(found[0]), "recommended": True}
        time.sleep(0.2)
    raise SystemExit(f"the launch {status.launch_id} left no observation")


@contextmanager
def _service(options: argparse.Namespace) -> Iterator[Client]:
    """`advisor serve --launching` with a token of its own, in this home."""
    token = json.loads(
        _advisor("tokens", "create", f"measure-{os.getpid()}", "--scope", "read", "--scope",
                 "launch", "--json")
    )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "advisor_cli", "serve", "--launching", "--port", str(port)]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=log, stderr=log) as server,
        Client(f"http://127.0.0.1:{port}", token=_secret(token)) as client,
    ):
        try:
            _await(client)
            yield client
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def _secret(token: Mapping[str, Any]) -> str:
    return str(token["secret"])


def _await(client: Client) -> None:
    deadline = time.monotonic() + _READY_S
    while not client.ready():
        if time.monotonic() > deadline:
            raise SystemExit("the service is not ready")
        time.sleep(0.2)


def _advisor(*arguments: str) -> str:
    command = [sys.executable, "-m", "advisor_cli", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def _tell(door: str, o: dict[str, Any]) -> dict[str, Any]:
    jobs: list[dict[str, Any]] = o["jobs"]
    way = "/".join(f"{j['share_percent']:g}" for j in jobs) if o["mode"] == "mps" else o["mode"]
    cells = (
        " + ".join(_pair(o)),
        door,
        f"{way}, recommended" if o["recommended"] else way,
        f"{' + '.join(str(job.get('units')) for job in jobs)}{_unsafe(o)}",
        *(_both(job, "rate", 1) for job in jobs),
        _both(o, "power_w", 1),
        _both(o, "work_per_joule", 1000),
        f"{(o['energy_j'] or 0) / 1000:.2f}",
        f"{o['overlap_s']:.1f}",
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    return {**o, "door": door}


def _pair(o: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(job["job"] for job in o["jobs"])


def _unsafe(o: Mapping[str, Any]) -> str:
    """The job of a recorded launch that ran where its library computes wrong results, if any."""
    return "".join(f", unsafe for {job}" for job in o.get("jobs_at_unsafe_counts", ()))


def _both(o: Mapping[str, Any], name: str, scale: float) -> str:
    predicted, observed = o.get(f"predicted_{name}"), o.get(name)
    if predicted is None or observed is None:
        return "-"
    off = 100 * (observed / predicted - 1)
    return f"{scale * predicted:.4g}, {scale * observed:.4g} ({off:+.1f} %)"


def _gains(seen: list[dict[str, Any]]) -> None:
    """What the recommended split does beside the others of the same pair, as observed."""
    print("\n| pair | recommended over 50/50 | over uncapped |\n| --- | --- | --- |")
    gains = []
    for pair in dict.fromkeys(map(_pair, seen)):
        own = [o for o in seen if _pair(o) == pair and o["door"] == "command"]
        if any(map(_unsafe, own)):
            print(f"| {' + '.join(pair)} | withdrawn | withdrawn |")
            continue
        work = [o["work_per_joule"] for o in own]
        gains.append([100 * (work[0] / other - 1) for other in work[1:]])
        print(f"| {' + '.join(pair)} | {' | '.join(f'{gain:+.1f} %' for gain in gains[-1])} |")
    means = (f"{statistics.mean(column):+.1f} %" for column in zip(*gains, strict=True))
    print(f"| mean | {' | '.join(means)} |")


def _errors(recommended: list[dict[str, Any]]) -> None:
    """How far the predictions of the recommended splits are from what was observed."""
    print("\n| recommended splits | mean distance | mean | lowest | highest |\n|" + " --- |" * 5)
    rates = [job for o in recommended for job in o["jobs"]]
    all_of = {
        "rates": (rates, "rate"),
        "power": (recommended, "power_w"),
        "work": (recommended, "work_per_joule"),
    }
    for what, (of, name) in all_of.items():
        off = [100 * (one[name] / one[f"predicted_{name}"] - 1) for one in of]
        shown = (statistics.mean(off), min(off), max(off))
        distance = statistics.mean(map(abs, off))
        print(f"| {what} | {distance:.1f} % | {' | '.join(f'{x:+.1f} %' for x in shown)} |")


if __name__ == "__main__":
    main()
