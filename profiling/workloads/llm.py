"""Decode and prefill of a language model shaped like Llama 3.2 1B, with random weights.

`size` is the context in tokens: what decode attends to, and the prompt of prefill. Decode replays
CUDA graphs, as serving engines do; otherwise it would wait for Python and not for memory.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import harness
import torch
from torch import nn
from torch.nn import functional

LOADS = {
    "decode": harness.Load(batch=32, size=2048, inner=8),
    "prefill": harness.Load(batch=2, size=2048),
}


@dataclass(frozen=True)
class _Shape:
    """Sizes of the network; the defaults are those of Llama 3.2 1B."""

    width: int = 2048
    layers: int = 16
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 8192
    vocabulary: int = 128_256

    @property
    def head_width(self) -> int:
        """Numbers of one head in a query, key or value."""
        return self.width // self.heads


class _Layer(nn.Module):
    """Grouped-query attention with a key-value cache, and a gated MLP."""

    def __init__(self, shape: _Shape, batch: int, context: int) -> None:
        super().__init__()
        self.shape = shape
        self.heads = (shape.heads, shape.kv_heads, shape.kv_heads)
        self.norm_attention, self.norm_mlp = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.qkv = nn.Linear(shape.width, sum(self.heads) * shape.head_width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.gate_up = nn.Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)
        # Random: the cache of a context that was read before.
        cache = torch.randn(2, batch, shape.kv_heads, context, shape.head_width)
        self.register_buffer("cache", cache)

    def forward(self, x: torch.Tensor, position: torch.Tensor, angles: torch.Tensor):
        """Shapes: x (batch, tokens, width), position (tokens,), angles (tokens, head width / 2)."""
        x = x + self._attention(self.norm_attention(x), position, angles)
        gate, up = self.gate_up(self.norm_mlp(x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)

    def _attention(self, x: torch.Tensor, position: torch.Tensor, angles: torch.Tensor):
        batch, tokens, _ = x.shape
        heads = self.qkv(x).unflatten(-1, (-1, self.shape.head_width)).transpose(1, 2)
        q, k, v = heads.split(self.heads, dim=1)
        q, k = _turned(q, angles), _turned(k, angles)
        keys, values = self.cache[0, :batch], self.cache[1, :batch]
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        mixed = (
            self._decode(q, keys, values)
            if tokens == 1
            else functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    def _decode(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        # The heads that share keys become the queries of one head, so no key is read twice.
        grouped = q.reshape(q.shape[0], self.shape.kv_heads, -1, self.shape.head_width)
        return functional.scaled_dot_product_attention(grouped, keys, values).reshape(q.shape)


class _Llama(nn.Module):
    """Tokens in, logits of the last token out."""

    def __init__(self, shape: _Shape, batch: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(_Layer(shape, batch, context) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        exponents = torch.arange(0, shape.head_width, 2, dtype=torch.float32) / shape.head_width
        self.register_buffer("frequencies", 500_000**-exponents)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Shapes: tokens (batch, tokens), position (tokens,); returns (batch, vocabulary)."""
        x = self.embedding(tokens)
        angles = position[:, None] * self.frequencies
        for layer in self.layers:
            x = layer(x, position, angles)
        return functional.linear(self.norm(x[:, -1]), self.embedding.weight)


def next_token(
    model: _Llama, tokens: torch.Tensor, position: torch.Tensor, context: int
) -> torch.Tensor:
    """Sample one more token for each sequence, the cache used as a ring; returns the chances."""
    chances = model(tokens, position).float().softmax(dim=-1)
    # The largest of p / Exp(1) is a sample from p, and needs no word from the CPU.
    tokens.copy_((chances / torch.empty_like(chances).exponential_()).argmax(-1, keepdim=True))
    position.add_(1).remainder_(context)
    return chances


def _decode(model: _Llama, shape: _Shape, args: argparse.Namespace) -> harness.Work:
    """One more token for each sequence; progress is tokens."""
    tokens = torch.randint(shape.vocabulary, (args.batch, 1))
    position = torch.zeros(1, dtype=torch.int64)
    fixed, start = tokens.clone(), position.clone()

    step = partial(next_token, model, tokens, position, args.size)
    step_all = harness.repeated(captured(step) if args.device == "cuda" else step, args.inner)
    return harness.Work(step_all, args.batch * args.inner, lambda: model(fixed, start))


def _prefill(model: _Llama, shape: _Shape, args: argparse.Namespace) -> harness.Work:
    """A whole prompt at once; progress is tokens."""
    prompts = harness.rotating(lambda: torch.randint(shape.vocabulary, (args.batch, args.size)))
    position = torch.arange(args.size)
    fixed = next(prompts)
    step = harness.repeated(lambda: model(next(prompts), position), args.inner)
    return harness.Work(step, args.batch * args.size * args.inner, lambda: model(fixed, position))


def _build(args: argparse.Namespace) -> harness.Work:
    return {"decode": _decode, "prefill": _prefill}[args.name](*build_model(args), args)


def build_model(args: argparse.Namespace) -> tuple[_Llama, _Shape]:
    """The network with room for `--batch` sequences of `--size` tokens."""
    shape = (
        _Shape(width=32, layers=2, heads=4, kv_heads=2, hidden=64, vocabulary=256)
        if args.tiny
        else _Shape()
    )
    default = torch.get_default_dtype()
    torch.set_default_dtype(harness.torch_type(args.dtype or "bf16"))
    model = _Llama(shape, args.batch, args.size).eval()
    torch.set_default_dtype(default)
    return model, shape


def captured(step: Callable[[], object], pool: Any = None) -> Callable[[], None]:
    """The step as a CUDA graph; graphs that never run at the same time may share a pool."""
    # Capture wants the libraries loaded and their workspaces taken, on a stream of its own.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()

    def replay(_step: Callable[[], object] = step) -> None:
        """Replay the graph; the closure of the kept step holds the memory that it reads."""
        graph.replay()

    return replay


def _turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding (Su et al. 2021), halves rotated against each other."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


if __name__ == "__main__":
    harness.run(_build, harness.options(harness.parser(__doc__, LOADS), LOADS))
