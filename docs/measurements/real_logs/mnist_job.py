"""A network for images of digits, trained on the GPU, with the log of PyTorch's MNIST example.

    python mnist_job.py --epoch-s 5 --epochs 6 --truth FOLDER

Images are random; an epoch has as many as the GPU takes in `--epoch-s` seconds when nothing else
runs there. `PID.jsonl` in the folder has the images trained on so far, after each epoch.
"""

import json
import os
import time

import torch
from torch import nn
from torch.nn import functional
from work import parser

BATCH, LOG_EVERY, TRIED = 64, 10, 400


class Net(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


def main() -> None:
    """Train, and print as the example does."""
    options = parser().parse_args()
    options.truth.mkdir(exist_ok=True)
    torch.manual_seed(1)
    model = Net().cuda()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    images = torch.randn(TRIED * BATCH, 1, 28, 28, device="cuda")
    labels = torch.randint(0, 10, (TRIED * BATCH,), device="cuda")

    def step(number: int) -> float:
        part = slice(number % TRIED * BATCH, (number % TRIED + 1) * BATCH)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[part]), labels[part])
        loss.backward()
        optimizer.step()
        return loss.item() if number % LOG_EVERY == 0 else 0.0

    for number in range(TRIED):
        step(number)
    begun_s = time.monotonic()
    for number in range(TRIED):
        step(number)
    steps = int(options.epoch_s / (time.monotonic() - begun_s) * TRIED)
    total = steps * BATCH
    with (options.truth / f"{os.getpid()}.jsonl").open("w", buffering=1) as truth:
        for epoch in range(1, options.epochs + 1):
            for number in range(steps):
                loss = step(number)
                if number % LOG_EVERY == 0:
                    done, percent = number * BATCH, 100 * number / steps
                    print(
                        f"Train Epoch: {epoch} [{done}/{total} ({percent:.0f}%)]\tLoss: {loss:.6f}",
                        flush=True,
                    )
            done = {"time_s": time.time(), "steps": epoch * total, "total": options.epochs * total}
            truth.write(json.dumps(done) + "\n")
            print(f"\nTest set: Average loss: {loss:.4f}, Accuracy: 9813/10000 (98%)\n", flush=True)


if __name__ == "__main__":
    main()
