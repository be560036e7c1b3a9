"""Inference servers whose requests arrive at a fixed rate, whatever the GPU can do (open loop).

A request of `bert` is a sequence of `size` tokens, of `vit` an image of `size` pixels, of `whisper`
a clip of 30 s that becomes `size` tokens, of `llm` an answer of 32 tokens to a prompt whose context
of `size` tokens was read before. `embedding` is asked for 8192 sums of 32 rows, `recommender` for
the scores of 4096 candidates; `size` is the rows of a table there. `batch` is the largest batch:
what has arrived while the GPU was busy is answered together. Requests arrive at random, `--rate`
per second on average. The queue holds four full batches; then the oldest request gives way and is
never answered. Progress is answered requests.

A batch of `llm` stays together until its answers are complete; with `--continuous` requests join
those under way at the next token, and leave with their last one.

Work is replayed from CUDA graphs, one for each power of two of the batch, as serving engines do:
small batches would wait for Python otherwise, and not for the GPU.

`--capacity` finds out what the GPU can answer when requests never run out, and prints it.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import harness
import llm
import torch
import transformers_models as models
from open_loop import Arrivals, ContinuousServer, Server
from tensor_ops import EMBEDDING_WIDTH, LOOKUPS_PER_BAG
from torch import nn
from torch.nn import functional

BAGS = 8192
# What one request asks for; 8 with `tiny`.
_CANDIDATES = 4096
# Of a candidate, as in Criteo's data: so many numbers, and a row of each of so many tables.
_NUMBERS, _CATEGORIES, _WIDTH = 13, 26, 64


class _Embedding(nn.Module):
    """Sums of rows, one for each bag."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, EMBEDDING_WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Shape of the rows: (requests, bags, rows of a bag)."""
        return functional.embedding_bag(rows.flatten(0, 1), self.table.weight, mode="sum")


class _Recommender(nn.Module):
    """The deep learning recommendation model (Naumov et al. 2019): a score for each candidate."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        vectors = _CATEGORIES + 1
        pairs = [vectors * a + b for a, b in itertools.combinations(range(vectors), 2)]
        self.table = nn.Embedding(_CATEGORIES * rows, _WIDTH)
        self.numbers = _mlp(_NUMBERS, 512, 256, _WIDTH)
        self.score = _mlp(_WIDTH + len(pairs), 1024, 1024, 512, 256, 1)
        self.register_buffer("first_rows", torch.arange(_CATEGORIES) * rows)
        self.register_buffer("pairs", torch.tensor(pairs))

    def forward(self, numbers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Shapes: (requests, candidates, numbers or categories)."""
        dense = self.numbers(numbers)
        vectors = torch.cat([dense.unsqueeze(-2), self.table(rows + self.first_rows)], dim=-2)
        products = (vectors @ vectors.mT).flatten(-2)[..., self.pairs]
        return self.score(torch.cat([dense, products], dim=-1))


def _embedding(tiny: bool, size: int) -> models.Model:
    """32 random rows for each bag."""
    bags = 8 if tiny else BAGS
    return models.Model(
        _Embedding(size), lambda batch, rows: {"rows": _rows(rows, batch, bags, LOOKUPS_PER_BAG)}
    )


def _recommender(tiny: bool, size: int) -> models.Model:
    """Normally distributed numbers, and rows that are all as likely."""

    def inputs(batch: int, rows: int) -> models.Inputs:
        shape = batch, 8 if tiny else _CANDIDATES
        return {"numbers": torch.randn(*shape, _NUMBERS), "rows": _rows(rows, *shape, _CATEGORIES)}

    return models.Model(_Recommender(size), inputs)


BUILDERS = {"embedding": _embedding, "recommender": _recommender}


def _rows(rows: int, *shape: int) -> torch.Tensor:
    # 32 bits: half of what the host has to send.
    return torch.randint(rows, shape, dtype=torch.int32)


def _mlp(*widths: int) -> nn.Sequential:
    return nn.Sequential(
        *(layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU()))
    )[:-1]


LOADS = {
    "bert": harness.Load(batch=32, size=256),
    "vit": harness.Load(batch=32, size=224),
    "whisper": harness.Load(batch=16, size=32, tiny=4),
    "llm": harness.Load(batch=32, size=2048),
    "embedding": harness.Load(batch=32, size=2**23),
    "recommender": harness.Load(batch=16, size=2**19),
}
ANSWER_TOKENS = 32
QUEUED_BATCHES = 4
CAPACITY_S = 10.0

Step = Callable[[int], torch.Tensor]


@dataclass(frozen=True)
class _ModelService:
    """What answers requests.

    Attributes:
        launch: Launches the work of this many requests, or one of the steps in which it is done.
        result: As of `harness.Work`, for every size of batch that has a graph of its own.
        network: Kept, because graphs know the addresses of its weights and do not hold them.
        steps: In which the work of a request is done: tokens of an answer.
    """

    launch: Callable[[int], object]
    result: Callable[[], object]
    network: torch.nn.Module
    steps: int = 1

    def answer(self, requests: int) -> None:
        """Launch all steps for these requests."""
        for _ in range(self.steps):
            self.launch(requests)


def _passes(args: argparse.Namespace) -> _ModelService:
    """One pass for each batch, whose inputs come from the host."""
    build_model = (models.BUILDERS | BUILDERS)[args.name]
    model, dtype = build_model(args.tiny, args.size), harness.torch_type(args.dtype or "bf16")
    network = model.network.eval().to(dtype)
    forward = FORWARDS.get(args.name, lambda network: network)(network)

    def make() -> models.Inputs:
        inputs = models.cast(model.inputs(args.batch, args.size), dtype, model)
        inputs.pop("decoder_attention_mask", None)  # tokens come one by one here
        return inputs

    placed = make()
    received = harness.rotating(lambda: _on_host(make(), args.device))
    step = _graphs(lambda n: forward(**_first(placed, n)), args)

    def launch(requests: int) -> None:
        for name, value in _first(next(received), requests).items():
            placed[name][:requests].copy_(value, non_blocking=True)
        step(requests)

    return _ModelService(
        launch, lambda: [step(size).clone() for size in _sizes(args.batch)], network
    )


def _answers(args: argparse.Namespace) -> _ModelService:
    """Tokens for all sequences of a batch together, until its answers are complete."""
    model, shape = llm.build_model(args)
    first = torch.randint(shape.vocabulary, (args.batch, 1))
    tokens, position = first.clone(), torch.zeros(1, dtype=torch.int64)

    def begin() -> None:
        tokens.copy_(first)
        position.zero_()

    # A step leaves what it sampled in the cache, and samples depend on the number of SMs: before
    # the result is taken, nothing but first steps may have run.
    step = _graphs(lambda n: llm.next_token(model, tokens[:n], position, args.size), args, begin)

    def first_chances(requests: int) -> torch.Tensor:
        begin()
        return step(requests).clone()

    return _ModelService(
        step,
        # The chances, not the tokens: rounding can turn one sample into another.
        lambda: [first_chances(size) for size in _sizes(args.batch)],
        model,
        ANSWER_TOKENS,
    )


def _serve(service: _ModelService, args: argparse.Namespace, value: float) -> None:
    """Answer requests at `--rate` until `--seconds` are over or the advisor quits."""
    progress = harness.Progress(on_pause=lambda: server.pause())
    arrivals = Arrivals(args.rate, QUEUED_BATCHES * args.batch, harness.process_seed(args))
    record = harness.recorder(args.device)
    server = (
        ContinuousServer(
            arrivals, service.launch, record, progress, args.batch, tokens=service.steps
        )
        if args.continuous
        else Server(arrivals, service.answer, record, progress, args.batch)
    )
    progress.report(value)
    _warm_up(service, args)
    progress.ready()
    end_s = time.monotonic() + (args.seconds or float("inf"))
    while time.monotonic() < end_s:
        server.turn()
    server.pause()
    print(f"{arrivals.dropped} requests found the queue full", flush=True)


def _capacity(service: _ModelService, args: argparse.Namespace, value: float) -> None:
    """Answer full batches as fast as the GPU can, and print how many requests that are."""
    _warm_up(service, args)
    answered: list[int] = []
    record = harness.recorder(args.device)
    finished = harness.Finished(record, lambda units, _: answered.append(units), args.batch)
    begun_s, duration_s = time.monotonic(), args.seconds or CAPACITY_S
    while time.monotonic() < begun_s + duration_s:
        service.answer(args.batch)
        finished.launched()
    finished.drain()
    rate = sum(answered) / (time.monotonic() - begun_s)
    print(f"{args.name}: {rate:.1f} requests/s in batches of {args.batch}", flush=True)


def _warm_up(service: _ModelService, args: argparse.Namespace) -> None:
    for size in _sizes(args.batch):
        service.answer(size)
    harness.recorder(args.device)().synchronize()


def _bert(network: torch.nn.Module) -> Callable[..., torch.Tensor]:
    """The network without the attention mask that the library adds to it under capture only."""
    bert = network.bert

    def forward(input_ids: torch.Tensor) -> torch.Tensor:
        encoded = bert.encoder(bert.embeddings(input_ids=input_ids)).last_hidden_state
        return network.classifier(bert.pooler(encoded))

    return forward


def _image(network: torch.nn.Module) -> Callable[..., torch.Tensor]:
    return lambda pixel_values: network(pixel_values=pixel_values).logits


def _whisper(network: torch.nn.Module) -> Callable[..., torch.Tensor]:
    """Encodes clips, then decodes token after token; returns the logits of the last one.

    The tokens are given: rounding could turn one choice into another, and results would differ.
    """
    speech = network.model

    def forward(input_features: torch.Tensor, decoder_input_ids: torch.Tensor) -> torch.Tensor:
        heard = speech.encoder(input_features).last_hidden_state
        cache = None
        for token in decoder_input_ids.split(1, dim=1):
            decoded = speech.decoder(
                token, encoder_hidden_states=heard, past_key_values=cache, use_cache=True
            )
            cache = decoded.past_key_values
            logits = network.proj_out(decoded.last_hidden_state)
        return logits

    return forward


FORWARDS = {"bert": _bert, "vit": _image, "whisper": _whisper}


def _graphs(
    step: Step, args: argparse.Namespace, begin: Callable[[], object] = lambda: None
) -> Step:
    """The step for any number of requests, as the graph of the next size; on the CPU as it is.

    The step runs once before each capture, and `begin` before that.
    """
    if args.device == "cpu":
        return step
    pool = torch.cuda.graph_pool_handle()
    outputs: dict[int, torch.Tensor] = {}

    def graph(size: int) -> Callable[[], None]:
        def into() -> None:
            outputs[size] = step(size)

        begin()
        return llm.captured(into, pool)

    # The largest first: the smaller ones then fit into its memory.
    graphs = {size: graph(size) for size in _sizes(args.batch)[::-1]}

    def replay(requests: int) -> torch.Tensor:
        size = min(size for size in graphs if size >= requests)
        graphs[size]()
        return outputs[size]

    return replay


def _sizes(most: int) -> list[int]:
    """Powers of two below the largest batch, and that."""
    return [2**n for n in range(most.bit_length()) if 2**n < most] + [most]


def _first(inputs: models.Inputs, requests: int) -> models.Inputs:
    return {name: value[:requests] for name, value in inputs.items()}


def _on_host(inputs: models.Inputs, device: str) -> models.Inputs:
    host = {name: value.cpu() for name, value in inputs.items()}
    return host if device == "cpu" else {name: value.pin_memory() for name, value in host.items()}


def _rate(text: str) -> float:
    if not 0 < (rate := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no rate above 0")
    return rate


if __name__ == "__main__":
    parser = harness.parser(__doc__, LOADS)
    parser.add_argument("--rate", type=_rate, help="requests per second that arrive on average")
    parser.add_argument("--capacity", action="store_true", help="print what can be answered")
    parser.add_argument("--continuous", action="store_true", help="of llm: join at any token")
    args = harness.options(parser, LOADS)
    if args.continuous and args.name != "llm":
        parser.error("--continuous goes with llm")
    if [args.rate is not None, args.capacity, args.check].count(True) != 1:
        parser.error("give one of --rate, --capacity and --check")
    build = _answers if args.name == "llm" else _passes
    harness.run(build, args, _capacity if args.capacity else _serve)
