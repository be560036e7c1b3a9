"""Weights and activations of a network before and after training, as matrices in npy files.

    python3 network_tensors.py FOLDER --seconds 90

needs PyTorch and NumPy, and nothing of the advisor. The network is a decoder of two blocks, the
first with GELU, the second with ReLU, that learns the next byte of the Python standard library's
own source files, which every machine has. Its width, the width of its hidden layers and its context
are `--side`, so that each matrix is square. Matrices are what a linear layer or attention
multiplies, for the same text before and after training, which is none of the text that is trained
on.

Numbers are those of bfloat16, in which the products are computed under autocast, stored as float32;
int8 weights have a scale for each output, int8 activations one for each token. FOLDER comes into
being when all is done; `tensors.json` in it says the losses.
"""

import argparse
import json
import math
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

BYTES = 256
HEAD = 128
BATCH = 2
LEARNING_RATE = 0.8
"""Over the width: wider layers add up more changes."""

WARM_UP = 100
HELD_OUT = 0.05
"""Of the text: nothing of it is trained on."""

LEAST_FALL = 0.5
"""Nats per byte by which the loss must fall, or nothing was learned."""

Tensors = dict[str, torch.Tensor]


class Block(nn.Module):
    """Causal attention and two linear layers, each behind a LayerNorm."""

    def __init__(self, width: int, activation: Any) -> None:
        super().__init__()
        self.heads = max(1, width // HEAD)
        self.before_attention, self.before_hidden = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens of (batch, context, width)."""
        x = self.attended(x)
        return x + self.down(self.hidden(x)[1])

    def attended(self, x: torch.Tensor) -> torch.Tensor:
        """Behind attention."""
        q, k, v = (self._by_head(part) for part in self._parts(x))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))

    def hidden(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of what is behind attention: outputs of the LayerNorm and of the activation."""
        normed = self.before_hidden(x)
        return normed, self.activation(self.up(normed))

    def attention(self, x: torch.Tensor) -> Tensors:
        """What attention multiplies, of one text; softmax of the first head."""
        q, k, v = self._parts(x)
        first, other = self._by_head(q)[0, 0].float(), self._by_head(k)[0, 0].float()
        scores = first @ other.T / math.sqrt(first.shape[1])
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        softmax = scores.masked_fill(later, -math.inf).softmax(-1)
        return {"queries": q[0], "keys": k[0], "values-transposed": v[0].T, "softmax": softmax}

    def _parts(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.qkv(self.before_attention(x)).chunk(3, -1)

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Network(nn.Module):
    """Predicts the next byte."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, side), nn.Embedding(side, side)
        self.gelu = Block(side, functional.gelu)
        self.relu = Block(side, functional.relu)
        self.last, self.head = nn.LayerNorm(side), nn.Linear(side, BYTES)

    def embedded(self, text: torch.Tensor) -> torch.Tensor:
        """Bytes with their places."""
        return self.bytes(text) + self.places.weight[: text.shape[1]]

    def loss(self, text: torch.Tensor) -> torch.Tensor:
        """Nats per byte; text is one longer than the context."""
        x = self.relu(self.gelu(self.embedded(text[:, :-1])))
        logits = self.head(self.last(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten())

    def tensors(self, text: torch.Tensor) -> Tensors:
        """Matrices that are multiplied, of one text."""
        x = self.embedded(text[:, :-1])
        found = self.gelu.attention(x)
        normed, gelu = self.gelu.hidden(self.gelu.attended(x))
        _, relu = self.relu.hidden(self.relu.attended(self.gelu(x)))
        return found | {
            "layernorm": normed[0],
            "gelu": gelu[0],
            "relu": relu[0],
            "weight-up": self.gelu.up.weight,
            "weight-gelu": self.gelu.down.weight,
            "weight-relu": self.relu.down.weight,
        }


def main() -> None:
    """The command line."""
    options = _parser().parse_args()
    if options.folder.exists():
        raise SystemExit(f"{options.folder} is there already")
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder.parent) as made:
        folder = Path(made) / "made"
        folder.mkdir()
        make(folder, options.side, options.seconds, options.device)
        folder.rename(options.folder)


def make(folder: Path, side: int, seconds: float, device: str) -> None:
    """Train a network, and write its tensors before and after into a folder."""
    torch.manual_seed(0)
    text = standard_library().to(device)
    if len(text) * HELD_OUT <= side + 1:
        raise SystemExit(f"the standard library has {len(text)} bytes of source: too few")
    split = int(len(text) * (1 - HELD_OUT))
    test = text[split : split + side + 1].long()[None]
    network = Network(side).to(device)
    before = write(folder, "before", network, test)
    steps = train(network, text[:split], side, seconds)
    after = write(folder, "after", network, test)
    said = {"loss_before": before, "loss_after": after, "steps": steps, "side": side}
    print(json.dumps(said), flush=True)
    if not after < before - LEAST_FALL:
        raise SystemExit(f"the loss was {before:.3f} and is {after:.3f}: nothing was learned")
    said |= {"torch": torch.__version__, "seconds": seconds}
    (folder / "tensors.json").write_text(json.dumps(said) + "\n")


def standard_library() -> torch.Tensor:
    """All source files, one after the other, in an order of their own."""
    root = Path(sysconfig.get_paths()["stdlib"])
    names = [path.relative_to(root).as_posix() for path in root.rglob("*.py")]
    own = sorted(name for name in names if "-packages/" not in name)
    mixed = np.random.default_rng(0).permutation(len(own))
    source = b"\n".join((root / own[n]).read_bytes() for n in mixed)
    return torch.from_numpy(np.frombuffer(source, np.uint8).copy())


def train(network: Network, text: torch.Tensor, side: int, seconds: float) -> int:
    """Learn for some time; how many steps that were."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE / max(side, BYTES))
    ramp = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / WARM_UP))
    places = torch.arange(side + 1, device=text.device)
    begun_s, said_s, steps = time.monotonic(), 0.0, 0
    while (spent_s := time.monotonic() - begun_s) < seconds:
        starts = torch.randint(len(text) - side - 1, (BATCH, 1)).to(text.device)
        with autocast(text.device):
            loss = network.loss(text[starts + places].long())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        ramp.step()
        steps += 1
        value = loss.item()  # also waits for the GPU, so that time is that of the work
        if not math.isfinite(value):
            raise SystemExit(f"the loss became {value} in step {steps}")
        if spent_s - said_s >= 5:
            said_s = spent_s
            print(f"training: {seconds - spent_s:.0f} s left, loss {value:.3f}", flush=True)
    return steps


@torch.no_grad()
def write(folder: Path, when: str, network: Network, test: torch.Tensor) -> float:
    """The tensors of one moment into files; the loss on the text that they are of."""
    with autocast(test.device):
        loss = network.loss(test).item()
        found = {name: tensor.bfloat16().float() for name, tensor in network.tensors(test).items()}
    for name, tensor in found.items():
        if not tensor.isfinite().all():
            raise SystemExit(f"{name} {when} training is not finite")
        save(folder, f"{name}-{when}", tensor)
        if name in ("layernorm", "gelu", "relu") or name.startswith("weight"):
            numbers, scale = quantised(tensor)
            save(folder, f"{name}-int8-{when}", numbers)
            if name == "weight-up":
                back = (numbers.float() * scale).bfloat16().float()
                save(folder, f"{name}-dequantised-{when}", back)
    return loss


def quantised(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric int8 with a scale for each row: an output of weights, a token of activations."""
    scale = matrix.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
    return (matrix / scale).round().clamp(-127, 127).to(torch.int8), scale


def save(folder: Path, name: str, tensor: torch.Tensor) -> None:
    """A matrix, row by row."""
    np.save(folder / f"{name}.npy", np.ascontiguousarray(tensor.cpu().numpy()))


def autocast(device: torch.device) -> torch.autocast:
    """Products in bfloat16, everything else in 32 bits."""
    return torch.autocast(device.type, torch.bfloat16)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=90, help="of training")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return parser


if __name__ == "__main__":
    main()
