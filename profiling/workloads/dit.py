"""One denoising step of a diffusion transformer, DiT-XL/2 (Peebles and Xie 2023, table 1).

`size` is the side of the latent image: 32 for pictures of 256 pixels.
"""

import argparse
import math

import harness
import torch
from torch import nn
from torch.nn import functional

LOADS = {"step": harness.Load(batch=32, size=32, tiny=8)}
CHANNELS, PATCH, CLASSES = 4, 2, 1000


class _TransformerBlock(nn.Module):
    """Attention and MLP whose scale, shift and gate come from the condition (adaLN)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Shapes: x (batch, tokens, width), condition (batch, width)."""
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = (
            self.modulation(functional.silu(condition)).unsqueeze(1).chunk(6, dim=-1)
        )
        projected = self.qkv(self.norm(x) * (1 + scale_a) + shift_a)
        q, k, v = projected.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + gate_a * self.out(mixed.transpose(1, 2).flatten(2))
        hidden = self.up(self.norm(x) * (1 + scale_m) + shift_m)
        return x + gate_m * self.down(functional.gelu(hidden, approximate="tanh"))


class _Dit(nn.Module):
    """Patches in, predicted noise out; conditioned on time and class."""

    def __init__(self, latent: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.grid = latent // PATCH
        self.patches = nn.Conv2d(CHANNELS, width, PATCH, stride=PATCH)
        self.positions = nn.Parameter(torch.randn(1, self.grid**2, width))
        self.classes = nn.Embedding(CLASSES, width)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(_TransformerBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, PATCH * PATCH * CHANNELS)

    def forward(self, x: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Shapes: x (batch, channels, side, side), time and label (batch,)."""
        condition = self.time(_waves(time).to(x.dtype)) + self.classes(label)
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            tokens = block(tokens, condition)
        patches = self.head(self.norm(tokens)).unflatten(1, (self.grid, self.grid))
        pieces = patches.unflatten(-1, (PATCH, PATCH, CHANNELS))
        return pieces.permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


def _build(args: argparse.Namespace) -> harness.Work:
    """A deterministic DDIM step (Song et al. 2021, eq. 12) on fresh noise; progress is images."""
    dtype = harness.torch_type(args.dtype or "bf16")
    width, depth, heads = (32, 2, 2) if args.tiny else (1152, 28, 16)
    network = _Dit(args.size, width, depth, heads).eval().to(dtype)

    def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        latents = torch.randn(args.batch, CHANNELS, args.size, args.size, dtype=dtype)
        return latents, torch.rand(args.batch) * 999, torch.randint(CLASSES, (args.batch,))

    batches = harness.rotating(batch)
    keep, keep_next = 0.5, 0.6  # signal left before and after the step

    fixed = next(batches)

    def denoised(x: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        noise = network(x, time, label)
        clean = (x - math.sqrt(1 - keep) * noise) / math.sqrt(keep)
        return math.sqrt(keep_next) * clean + math.sqrt(1 - keep_next) * noise

    return harness.Work(lambda: denoised(*next(batches)), args.batch, lambda: denoised(*fixed))


def _waves(time: torch.Tensor) -> torch.Tensor:
    frequencies = torch.exp(-math.log(10_000) * torch.arange(128, device=time.device) / 128)
    angles = time[:, None] * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


if __name__ == "__main__":
    harness.run(_build, harness.options(harness.parser(__doc__, LOADS), LOADS))
