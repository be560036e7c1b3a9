"""A server as people have them, HTTP in and an embedding out, and the load that it gets.

Three lines are for advisor: `Progress`, `ready` and `answered`.
"""

import argparse
import http.client
import queue
import random
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch

from advisor.progress import Progress

LENGTH, WIDTH, VOCABULARY, MOST_BATCH, CLIENTS = 128, 768, 16_384, 16, 24
RATE_PER_S = 120.0
PATIENCE_S = 1.0
"""Who waited longer has gone, and does not count: so nothing is left of a pause."""

Waiting = tuple[np.ndarray, float, queue.SimpleQueue[bytes]]
"""Tokens of a request, when it was due, and where its answer goes."""

requests: queue.Queue[Waiting] = queue.Queue(4 * MOST_BATCH)


class Handler(BaseHTTPRequestHandler):
    """Queues a request and waits for its answer."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Tokens in, the embedding out."""
        tokens = np.frombuffer(self.rfile.read(int(self.headers["Content-Length"])), np.int64)
        answer: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        requests.put((tokens, float(self.headers["X-Due"]), answer))
        content = answer.get()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, *_: object) -> None:
        """Not a line for each request."""


def serve() -> None:
    """Answer what has arrived together, until the advisor quits."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, batch_first=True)
    embed = torch.nn.Embedding(VOCABULARY, WIDTH).cuda().bfloat16()
    body = torch.nn.TransformerEncoder(layer, 12).cuda().bfloat16().eval()

    @torch.inference_mode()
    def answer(tokens: np.ndarray) -> np.ndarray:
        return body(embed(torch.from_numpy(tokens).cuda())).mean(1).float().cpu().numpy()

    progress = Progress(on_pause=torch.cuda.synchronize)
    for size in range(1, MOST_BATCH + 1):
        answer(np.zeros((size, LENGTH), np.int64))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    load = subprocess.Popen([sys.executable, __file__, "--load", str(server.server_port)])
    progress.ready()
    try:
        while True:
            batch = [requests.get()]
            while len(batch) < MOST_BATCH and not requests.empty():
                batch.append(requests.get())
            found = answer(np.stack([tokens for tokens, _, _ in batch]))
            for (_, _, back), row in zip(batch, found, strict=True):
                back.put(row.tobytes())
            late_s = [time.monotonic() - due_s for _, due_s, _ in batch]
            progress.answered([s for s in late_s if s < PATIENCE_S])
    finally:
        load.kill()


def send(port: int) -> None:
    """Requests at random moments, whether or not the last one was answered."""
    due: queue.Queue[float] = queue.Queue()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        tokens = np.random.default_rng(0).integers(0, VOCABULARY, LENGTH).tobytes()
        while True:
            at_s = due.get()
            if time.monotonic() - at_s < PATIENCE_S:
                connection.request("POST", "/", tokens, {"X-Due": repr(at_s)})
                connection.getresponse().read()

    for _ in range(CLIENTS):
        threading.Thread(target=client, daemon=True).start()
    at_s = time.monotonic()
    while True:
        at_s += random.expovariate(RATE_PER_S)
        time.sleep(max(0.0, at_s - time.monotonic()))
        due.put(at_s)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", type=int, help="the port to send requests to")
    port = parser.parse_args().load
    send(port) if port else serve()
