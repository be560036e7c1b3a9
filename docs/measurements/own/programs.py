"""Twelve programs that were never profiled: `python programs.py NAME` runs one without end.

They are what people write: a loop around a library's model, random data, a line for some steps.
NAME is a function below. The programs need PyTorch, JAX, CuPy and their libraries.
"""

import os
import sys
from collections.abc import Iterator

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")

STEPS = 10**9


def trained(model, loss_of, rate: float = 1e-3) -> Iterator[float]:
    """Train a PyTorch model on the GPU by Adam; the loss of every 20th step."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        yield loss.item() if step % 20 == 0 else 0.0


def lightning() -> None:
    """Train a perceptron by PyTorch Lightning, with its loaders and progress bar."""
    import pytorch_lightning as pl
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 10))

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    data = TensorDataset(torch.randn(50_000, 784), torch.randint(10, (50_000,)))
    trainer = pl.Trainer(max_epochs=-1, devices=1, logger=False, enable_checkpointing=False)
    trainer.fit(Net(), DataLoader(data, batch_size=256, num_workers=2, persistent_workers=True))


def bert() -> None:
    """Train BERT by the Trainer of transformers."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    words = torch.randint(30_000, (4096, 128))
    rows = [{"input_ids": row, "labels": torch.tensor(0)} for row in words]
    told = TrainingArguments(
        "/tmp/bert",
        max_steps=STEPS,
        per_device_train_batch_size=16,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        bf16=True,
    )
    Trainer(BertForSequenceClassification(BertConfig()), told, train_dataset=rows).train()


def gcn() -> Iterator[float]:
    """Train a graph network of three layers on the whole graph."""
    import torch
    from torch_geometric.nn import GCN

    x, edges = torch.randn(20_000, 128).cuda(), torch.randint(20_000, (2, 200_000)).cuda()
    y = torch.randint(16, (20_000,)).cuda()
    net = GCN(128, 256, 3, 16).cuda()
    return trained(net, lambda net: torch.nn.functional.cross_entropy(net(x, edges), y))


def jax_mlp() -> Iterator[float]:
    """Train six transformer layers by Flax and Optax."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(6):
                x = x + nn.Dense(512)(nn.gelu(nn.Dense(2048)(nn.LayerNorm()(x))))
                x = x + nn.MultiHeadDotProductAttention(num_heads=8)(x, x)
            return x

    block, x = Block(), jax.random.normal(jax.random.key(0), (16, 256, 512))
    state, adam = block.init(jax.random.key(1), x), optax.adam(1e-3)
    moments = adam.init(state)

    @jax.jit
    def step(state, moments):
        loss, grads = jax.value_and_grad(lambda s: jnp.mean(block.apply(s, x) ** 2))(state)
        updates, moments = adam.update(grads, moments)
        return optax.apply_updates(state, updates), moments, loss

    while True:
        state, moments, loss = step(state, moments)
        yield float(loss)


def nbody() -> Iterator[float]:
    """Add up the forces of 32,768 bodies by a kernel of our own."""
    import cupy

    forces = cupy.RawKernel(
        """extern "C" __global__ void forces(const float3* at, float3* out, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            float3 f = {0, 0, 0};
            for (int j = 0; j < n; j++) {
                float x = at[j].x - at[i].x, y = at[j].y - at[i].y, z = at[j].z - at[i].z;
                float r = rsqrtf(x * x + y * y + z * z + 0.01f);
                f.x += x * r; f.y += y * r; f.z += z * r;
            }
            out[i] = f;
        }""",
        "forces",
    )
    at = cupy.random.random((32_768, 3), dtype=cupy.float32)
    while True:
        out = cupy.empty_like(at)
        forces((256,), (128,), (at, out, cupy.int32(32_768)))
        at += 1e-9 * out
        yield float(at[0, 0])


def spectrum() -> Iterator[float]:
    """Transform a field of 512 x 512 x 64 there and back."""
    import cupy

    field = cupy.random.standard_normal((512, 512, 64)).astype("complex64")
    while True:
        field = cupy.fft.ifftn(cupy.fft.fftn(field) * 0.999)
        yield float(abs(field[0, 0, 0]))


def convnext() -> Iterator[float]:
    """Train timm's ConvNeXt in bfloat16."""
    import timm
    import torch

    images, kinds = torch.randn(64, 3, 224, 224).cuda(), torch.randint(1000, (64,)).cuda()
    net = timm.create_model("convnext_tiny").cuda()

    def loss_of(net):
        with torch.autocast("cuda", torch.bfloat16):
            return torch.nn.functional.cross_entropy(net(images), kinds)

    return trained(net, loss_of)


def unet() -> Iterator[float]:
    """Train small convolutions, down and up again."""
    import torch
    from torch import nn

    def conv(a: int, b: int, stride: int = 1) -> nn.Module:
        return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.GroupNorm(8, b), nn.SiLU())

    up = nn.Upsample(scale_factor=2)
    down = conv(3, 32), conv(32, 64, 2), conv(64, 128, 2)
    net = nn.Sequential(*down, conv(128, 64), up, conv(64, 32), up, conv(32, 8))
    images = torch.randn(8, 3, 128, 128).cuda()
    return trained(net.cuda(), lambda net: net(images).square().mean())


def demucs() -> Iterator[float]:
    """Separate two sources from 4 s of sound."""
    import torch
    from torchaudio.models import hdemucs_low

    net, sound = hdemucs_low(["a", "b"]).cuda().eval(), torch.randn(1, 2, 44_100 * 4).cuda()
    while True:
        with torch.inference_mode():
            yield net(sound).mean().item()


def detection() -> Iterator[float]:
    """Detect objects in one image after another."""
    import torch
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_fpn

    net = fasterrcnn_mobilenet_v3_large_fpn(weights=None, weights_backbone=None).cuda().eval()
    image = [torch.rand(3, 640, 640).cuda()]
    while True:
        with torch.inference_mode():
            yield float(len(net(image)[0]["boxes"]))


def gaussian() -> Iterator[float]:
    """Fit a Gaussian process to 3,000 points."""
    import gpytorch
    import torch

    x = torch.rand(3000, 4).cuda()
    y, noise = x.sum(1).sin(), gpytorch.likelihoods.GaussianLikelihood().cuda()

    class Process(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x, y, noise)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    process = Process().cuda().train()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(noise, process)
    return trained(process, lambda net: -likelihood(net(x), y), 0.01)


def generate() -> Iterator[float]:
    """Generate 64 tokens for 4 texts by GPT-2."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(GPT2Config()).cuda().half().eval()
    words = torch.randint(50_000, (4, 32)).cuda()
    while True:
        with torch.inference_mode():
            yield float(net.generate(words, max_new_tokens=64, do_sample=False)[0, -1])


if __name__ == "__main__":
    for number, loss in enumerate(globals()[sys.argv[1]]() or ()):
        if number % 10 == 0:
            print(f"step {number}: loss {loss:.4g}", flush=True)
