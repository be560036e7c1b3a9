"""How far the value that LLM servers report moves with the order of sums alone, and with faults.

    .venv/bin/python docs/measurements/results/summation_order.py     # half a minute, 4 GB, no GPU

The first decoded token of profiling/workloads/llm.py at its full size, with four sequences, in
NumPy: every product is rounded to bf16 as there, its sum taken in so many parts of 32-bit numbers.
A right library differs by no more than that from one number of SMs to another. Faults: a sixteenth
of the logits, or of what they are made from, was never written.
"""

import itertools
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

WIDTH, LAYERS, HEADS, KV_HEADS, HIDDEN, VOCABULARY, CONTEXT = 2048, 16, 32, 8, 8192, 128_256, 2048
SEQUENCES, SIZES, LOST = 4, (1, 2, 4), 1 / 16
PARTS = (1, 2, 3, 8)

Floats: TypeAlias = npt.NDArray[Any]


def main() -> None:
    """Print a row for each order of sums."""
    chance = np.random.default_rng(0)
    embedding = rounded(0.02 * chance.standard_normal((VOCABULARY, WIDTH), dtype=np.float32))
    tokens = chance.integers(0, VOCABULARY, SEQUENCES)
    states = [embedding[tokens] for _ in PARTS]
    for _ in range(LAYERS):
        weights = Layer(chance)
        states = [weights.after(x, parts) for x, parts in zip(states, PARTS, strict=True)]
    first = states[0]
    print("| parts of a sum | hidden apart, % | value apart, % | logits lost, % | inputs lost, % |")
    print("|--:|--:|--:|--:|--:|")
    known = value(product(normed(first), embedding, PARTS[0]))
    for x, parts in zip(states, PARTS, strict=True):
        logits, given = product(normed(x), embedding, parts), normed(x)
        own = value(logits)
        logits[:, : int(LOST * VOCABULARY)] = 0
        given[:, : int(LOST * WIDTH)] = 0
        faults = value(logits), value(product(given, embedding, parts))
        apart = np.linalg.norm(x - first) / np.linalg.norm(first)
        gaps = (apart, abs(own / known - 1), *(abs(f / own - 1) for f in faults))
        print(f"| {parts} | {' | '.join(f'{100 * gap:.1f}' for gap in gaps)} |")


class Layer:
    """Random weights and cache of one layer, as PyTorch begins them."""

    def __init__(self, chance: np.random.Generator) -> None:
        def linear(out: int, of: int) -> Floats:
            return rounded(
                (2 * chance.random((out, of), dtype=np.float32) - 1) / np.float32(np.sqrt(of))
            )

        head = WIDTH // HEADS
        self.qkv, self.out = linear((HEADS + 2 * KV_HEADS) * head, WIDTH), linear(WIDTH, WIDTH)
        self.gate_up, self.down = linear(2 * HIDDEN, WIDTH), linear(WIDTH, HIDDEN)
        cache = (2, SEQUENCES, KV_HEADS, CONTEXT, head)
        self.keys, self.values = rounded(chance.standard_normal(cache, dtype=np.float32))

    def after(self, x: Floats, parts: int) -> Floats:
        """The residual stream behind the layer."""
        x = rounded(x + product(self._attended(product(normed(x), self.qkv, parts), parts),
                                self.out, parts))  # fmt: skip
        gate, up = np.split(product(normed(x), self.gate_up, parts), 2, axis=1)
        active = rounded(rounded(gate / (1 + np.exp(-gate))) * up)
        return rounded(x + product(active, self.down, parts))

    def _attended(self, qkv: Floats, parts: int) -> Floats:
        head = WIDTH // HEADS
        q, k, v = np.split(qkv, [WIDTH, WIDTH + KV_HEADS * head], axis=1)
        keys, values = self.keys.copy(), self.values.copy()
        keys[:, :, 0], values[:, :, 0] = (x.reshape(SEQUENCES, KV_HEADS, head) for x in (k, v))
        grouped = q.reshape(SEQUENCES, KV_HEADS, -1, head)
        scores = grouped @ keys.swapaxes(2, 3) / np.float32(np.sqrt(head))
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        kept = pieces(CONTEXT, parts)
        mixed = np.sum([rounded(chances[..., of]) @ values[:, :, of] for of in kept], 0)
        return rounded(mixed / chances.sum(-1, keepdims=True)).reshape(SEQUENCES, WIDTH)


def value(logits: Floats) -> float:
    """What is reported: the checksum of the chances of every size of batch."""
    chances = np.exp(logits - logits.max(-1, keepdims=True)).astype(np.float64)
    chances /= chances.sum(-1, keepdims=True)
    numbers = np.concatenate([chances[:size].ravel() for size in SIZES])
    signs = 1 - 2.0 * ((np.arange(numbers.size) * 2_654_435_761 >> 31) & 1)
    root = np.sqrt((numbers * numbers).mean())
    return float(root + abs((numbers * signs).sum()) / np.sqrt(numbers.size))


def product(x: Floats, weights: Floats, parts: int) -> Floats:
    """As a linear layer in bf16 does it, summed in so many parts."""
    return rounded(np.sum([x[:, of] @ weights[:, of].T for of in pieces(x.shape[1], parts)], 0))


def pieces(length: int, parts: int) -> list[slice]:
    """So many parts of a sum."""
    ends = [length * part // parts for part in range(parts + 1)]
    return list(itertools.starmap(slice, itertools.pairwise(ends)))


def normed(x: Floats) -> Floats:
    """RMS norm."""
    return rounded(x / np.sqrt((x * x).mean(-1, keepdims=True)))


def rounded(x: Floats) -> Floats:
    """To bf16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + ((bits >> 16) & 1) + 0x7FFF) & np.uint32(0xFFFF0000)).view(np.float32)


if __name__ == "__main__":
    main()
