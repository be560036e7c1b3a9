"""Trains a transformer of 12 layers on two GPUs, one process each; NCCL adds up the gradients.

    python3 two_ranks.py --batch 16

One step of both is a step. The first counts and has the gate: before the next step it tells the
other over the host whether to go on, so that no exchange waits on a GPU while the gate is closed.
"""

import argparse
import ctypes
import signal
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[3] / "profiling/workloads"))

from harness import WARM_UP_STEPS, Finished, Progress, recorder

RANKS, LAYERS, TOKENS = 2, 12, 256


def train(rank: int, given: argparse.Namespace, store: str) -> None:
    """One rank, until the gate says that it is over."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with its parent
    device, backend = given.device, "nccl" if given.device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=RANKS)
    host = dist.new_group(backend="gloo")
    torch.manual_seed(rank)
    layer = torch.nn.TransformerEncoderLayer(
        given.width, max(1, given.width // 64), 4 * given.width, dropout=0, batch_first=True
    )
    network = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).to(device)
    model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    texts = torch.randn(given.batch, TOKENS, given.width).to(device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            loss = (model(texts).float() - texts).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP_STEPS):
        step()
    recorder(device)().synchronize()
    progress = Progress(on_pause=lambda: finished.drain()) if rank == 0 else None
    add = progress.add if progress else lambda *_: None
    finished, goes_on = Finished(recorder(device), add, units=1), torch.ones(1)
    act = progress.ready if progress else lambda: None
    while goes_on:
        try:
            act()
        except SystemExit:
            goes_on.zero_()
        dist.broadcast(goes_on, 0, group=host)
        step()
        act = finished.launched


def main() -> None:
    """Start both ranks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batch", type=int, default=16, help="texts of 256 tokens for each rank")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (parser.parse_args(), f"{folder}/store"), RANKS)


if __name__ == "__main__":
    main()
