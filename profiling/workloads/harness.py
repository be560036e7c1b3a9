"""What the workloads share: options, the measured loop, counting what the GPU has finished.

PyTorch is imported when it is first asked for, so that the counting can be tested without it.
"""

import argparse
import contextlib
import importlib
import itertools
import math
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

# A workload often runs under another Python than the advisor: then this checkout serves it.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from advisor.progress import Progress

Value = TypeVar("Value")


class _Later:
    """PyTorch, imported as soon as something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("torch"), name)


torch: Any = _Later()

# Random numbers are drawn in pieces of this size. PyTorch deals a longer row out to as many
# blocks of 256 threads as the granted SMs hold, eight on each, and which block draws a number
# decides which one it is. Eight SMs, the fewest that there are under MPS, hold 64 blocks.
CHUNK = 16_384


@contextlib.contextmanager
def _same_numbers() -> Iterator[None]:
    """Inside, random tensors are the same for the same seed, whatever the number of SMs."""
    module = importlib.import_module("torch")
    changed = {
        (torch.Tensor, name): _in_pieces(getattr(torch.Tensor, name))
        for name in ("normal_", "uniform_", "random_")
    } | {
        (module, "randn"): lambda *shape, **options: torch.empty(*shape, **options).normal_(),
        (module, "rand"): lambda *shape, **options: torch.empty(*shape, **options).uniform_(),
        (module, "randint"): _random_integers,
    }
    # Changed in place: initialisers of networks reach them by many ways.
    before = {place: getattr(*place) for place in changed}
    try:
        for (owner, name), function in changed.items():
            setattr(owner, name, function)
        yield
    finally:
        for (owner, name), function in before.items():
            setattr(owner, name, function)


def _in_pieces(fill: Callable[..., Any]) -> Callable[..., Any]:
    def fill_in_pieces(tensor: Any, *args: Any, **options: Any) -> Any:
        chunk = CHUNK // 2 if tensor.is_complex() else CHUNK  # two numbers for each element
        if not tensor.is_contiguous() or tensor.numel() <= chunk:
            return fill(tensor, *args, **options)
        for piece in tensor.detach().view(-1).split(chunk):
            fill(piece, *args, **options)
        return tensor

    return fill_in_pieces


def _random_integers(*arguments: Any, **options: Any) -> Any:
    """As `torch.randint([low], high, shape)`."""
    *bounds, shape = arguments
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return torch.empty(shape, **{"dtype": torch.int64, **options}).random_(low, high)


def _checksum(result: Any) -> float:
    """One number for a result: its size, and how it lies in one pseudo-random direction.

    Root mean square plus the absolute projection on signs that depend on the place of an element:
    parts that were never written, or moved, change it even where the size stays as it was. NaN
    and infinity come through.
    """
    squares, projection, count = 0.0, 0.0, 0
    for tensor in _tensors_of(result):
        # Not all at once, for the sake of GPU memory.
        for piece in tensor.detach().reshape(-1).split(2**22):
            if not piece.numel():
                continue
            values = (torch.view_as_real(piece) if piece.is_complex() else piece).double().ravel()
            squares += float((values * values).sum())
            projection += float((values * _signs(values, count)).sum())
            count += values.numel()
    return math.sqrt(squares / count) + abs(projection) / math.sqrt(count) if count else math.nan


def _tensors_of(result: Any) -> Iterator[Any]:
    if isinstance(result, torch.Tensor):
        yield result
    elif hasattr(result, "logits"):
        yield result.logits
    elif isinstance(result, list | tuple):
        for item in result:
            yield from _tensors_of(item)


def _signs(values: Any, first: int) -> Any:
    """+1 or -1 by the place of an element (Knuth's multiplicative hash, one of its high bits)."""
    places = torch.arange(first, first + values.numel(), device=values.device)
    return 1 - 2 * ((places * 2_654_435_761 >> 31) & 1).double()


STORED_IMAGES = 256
MARGIN = 32
AHEAD = 2


def prefetched(read: Callable[[], Value], every_s: float, seed: object) -> Iterator[Value]:
    """What `read` returns, read in a thread, one each `every_s` seconds at most, two ahead.

    Each comes at a random moment of its own `every_s` seconds: jobs alike that begin at the same
    moment would wait and work in step otherwise. The rate is as steady as without that.
    """
    chance, slot_s = random.Random(str(seed)), float("-inf")

    def paced() -> Value:
        nonlocal slot_s
        # Later only where reading takes longer than that, or no batch was requested.
        slot_s = max(slot_s + every_s, time.monotonic())
        due_s = slot_s + every_s * chance.random()
        value = read()
        time.sleep(max(0.0, due_s - time.monotonic()))
        return value

    with ThreadPoolExecutor(max_workers=1) as thread:
        ahead: deque[Future[Value]] = deque(thread.submit(paced) for _ in range(AHEAD))
        while True:
            value = ahead.popleft().result()
            ahead.append(thread.submit(paced))
            yield value


def token_reader(batch: int, tokens: int, vocabulary: int, seed: int) -> Callable[[], Any]:
    """Reads random texts; shape (batch, tokens). From 1: token 0 is padding."""
    import numpy as np

    chance = np.random.default_rng(seed)
    return lambda: chance.integers(1, vocabulary, (batch, tokens))


def image_reader(batch: int, pixels: int, seed: int) -> Callable[[], Any]:
    """Reads random images, each cut and mirrored at random; shape (batch, pixels, pixels, 3)."""
    import numpy as np

    chance = np.random.default_rng(seed)
    side = pixels + MARGIN
    stored = chance.integers(0, 256, (STORED_IMAGES, side, side, 3), dtype=np.uint8)

    def read() -> Any:
        images = np.empty((batch, pixels, pixels, 3), dtype=np.uint8)
        for image in images:
            number, top, left = chance.integers((STORED_IMAGES, MARGIN, MARGIN))
            cut = stored[number, top : top + pixels, left : left + pixels]
            image[:] = cut[:, ::-1] if chance.integers(2) else cut
        return images

    return read


WARM_UP_STEPS = 3
# How often a running workload says whether its results are still finite.
_WATCH_S = 1.0
# Enough for the GPU never to wait for Python, few enough to stop quickly at a small share.
STEPS_IN_FLIGHT = 2


@dataclass(frozen=True)
class Load:
    """How much one step of a workload does unless the command line says otherwise.

    Attributes:
        batch: Independent problems handled together.
        size: Of one problem, in the unit that the workload documents.
        inner: Times that the work is launched in one step; more than one where a single launch
            takes microseconds, so that Python has nothing to do most of the time.
        tiny: `size` with `--tiny`.
    """

    batch: int
    size: int
    inner: int = 1
    tiny: int = 32


@dataclass(frozen=True)
class Work:
    """One step and how much progress it is.

    Attributes:
        step: Launches the work; returns before the GPU is done. What it returns is watched: a
            tensor, NaN or infinite where the step went wrong, or None.
        units: Progress of one step.
        result: Computes once what a step computes, always from the same input, and returns the
            tensors that tell whether it was right; called before the first step.
    """

    step: Callable[[], Any]
    units: int
    result: Callable[[], object]


class Finished:
    """Counts steps when the GPU has completed them, while a few more are under way.

    `record` marks the work launched so far; its event has the methods `query` and `synchronize` of
    `torch.cuda.Event`, and is completed together with that work. `add` receives the `units` of each
    completed step, and the value that came with it.
    """

    def __init__(
        self,
        record: Callable[[], Any],
        add: Callable[[int, float | None], None],
        units: int,
    ) -> None:
        self._record, self._add, self._units = record, add, units
        self._in_flight: deque[tuple[Any, Any]] = deque()

    def launched(self, value: Any = None) -> None:
        """Take note of one launched step; waits while too many are under way.

        Args:
            value: Holds a number of its own as soon as the step is completed.
        """
        self._in_flight.append((self._record(), value))
        while self._in_flight and (
            len(self._in_flight) > STEPS_IN_FLIGHT or self._in_flight[0][0].query()
        ):
            self._count_oldest()

    def drain(self) -> None:
        """Wait for everything that is under way, and count it."""
        while self._in_flight:
            self._count_oldest()

    def _count_oldest(self) -> None:
        event, value = self._in_flight.popleft()
        event.synchronize()
        self._add(self._units, None if value is None else float(value))


def parser(description: str | None, loads: dict[str, Load]) -> argparse.ArgumentParser:
    """The options that every workload script has; a script may add its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("name", choices=loads)
    parser.add_argument("--batch", type=_positive, help="independent problems handled together")
    parser.add_argument("--size", type=_positive, help="size of one problem, see above")
    parser.add_argument("--inner", type=_positive, help="launches per step")
    parser.add_argument("--dtype", choices=("bf16", "fp16", "fp32"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, help="exit after this time; default: never")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="as small as possible: a smoke test")
    parser.add_argument(
        "--check", action="store_true", help="print what tells whether a step is right, and exit"
    )
    return parser


def options(parser: argparse.ArgumentParser, loads: dict[str, Load]) -> argparse.Namespace:
    """The command line, with the load of the chosen workload where it says nothing."""
    args = parser.parse_args()
    load = loads[args.name]
    if args.tiny:
        args.batch, args.size, args.inner = 2, load.tiny, 1
    for field in ("batch", "size", "inner"):
        setattr(args, field, getattr(args, field) or getattr(load, field))
    return args


def run(
    build: Callable[[argparse.Namespace], Any],
    args: argparse.Namespace,
    loop: Callable[[Any, argparse.Namespace, float], None] | None = None,
) -> None:
    """Build the work on the device and do it until `--seconds` are over or the advisor quits.

    The loop does the work; without one the steps of a `Work` are done, one after the other.
    """
    torch.manual_seed(args.seed)
    # PyTorch's own default, written down: 32-bit products in 32 bits, not in TF32.
    torch.set_float32_matmul_precision("highest")
    with contextlib.nullcontext() if getattr(args, "train", False) else torch.inference_mode():
        # Not around the loop: the default device costs microseconds in every call.
        with torch.device(args.device), _same_numbers():
            work = build(args)
            value = _checksum(work.result())
        if args.check:
            print(f"{args.name}: {value:.9g}")
            raise SystemExit(0 if math.isfinite(value) else 1)
        if args.device == "cuda":
            torch.cuda.empty_cache()  # what only the check needed is no memory of the workload
        (loop or _loop)(work, args, value)


def process_seed(args: argparse.Namespace) -> object:
    """A seed that no process beside this one has: what is random in time must not go in step."""
    return args.seed, os.environ.get("ADVISOR_PROGRESS_FILE")


def torch_type(name: str) -> Any:
    """PyTorch's name of a type."""
    return {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "tf32": torch.float32,
        "fp8": getattr(torch, "float8_e4m3fn", None),
        "int8": torch.int8,
    }[name]


def rotating(make: Callable[[], Value]) -> Iterator[Value]:
    """Endless turns of four inputs, so that no step finds its input in the cache."""
    return itertools.cycle([make() for _ in range(4)])


def repeated(launch: Callable[[], object], times: int) -> Callable[[], None]:
    """A step that launches the same work several times."""

    def step() -> None:
        for _ in range(times):
            launch()

    return step


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def _loop(work: Work, args: argparse.Namespace, value: float) -> None:
    progress = Progress(on_pause=lambda: finished.drain())
    finished = Finished(recorder(args.device), progress.add, work.units)
    progress.report(value)
    for _ in range(WARM_UP_STEPS):
        work.step()
    recorder(args.device)().synchronize()
    progress.ready()
    end = time.monotonic() + (args.seconds or float("inf"))
    watched = 0.0
    while (now := time.monotonic()) < end:
        # Kept for as long as the next step takes.
        newest, mean = work.step(), None
        if newest is not None and now - watched >= _WATCH_S:
            watched, on_device = now, newest.detach().float().mean()
            # A copy that waits for nothing; it is there with the next event.
            mean = torch.empty((), dtype=on_device.dtype, pin_memory=on_device.is_cuda)
            mean.copy_(on_device, non_blocking=True)
        finished.launched(mean)
    finished.drain()


def recorder(device: str) -> Callable[[], Any]:
    """What marks the work launched so far."""
    if device == "cpu":
        # A step is finished when it returns.
        done = SimpleNamespace(query=lambda: True, synchronize=lambda: None)
        return lambda: done

    def record() -> Any:
        # Blocking: the wait leaves the core to others instead of spinning on it.
        event = torch.cuda.Event(blocking=True)
        event.record()
        return event

    return record
