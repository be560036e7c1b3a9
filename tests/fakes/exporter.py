"""A dcgm-exporter that answers over real HTTP with what a test sets.

The text is in the exporter's format (NVIDIA/dcgm-exporter, README and etc/default-counters.csv).
"""

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, cast

UUID = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"

CLASSIC: dict[str, float] = {
    "DCGM_FI_DEV_SM_CLOCK": 1410,
    "DCGM_FI_DEV_MEM_CLOCK": 2619,
    "DCGM_FI_DEV_GPU_TEMP": 61,
    "DCGM_FI_DEV_POWER_USAGE": 250.5,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 7500,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 33,
    "DCGM_FI_DEV_FB_USED": 2048,
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 700,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 4,
    "DCGM_FI_PROF_SM_ACTIVE": 0.5,
    "DCGM_FI_PROF_SM_OCCUPANCY": 0.25,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.125,
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": 0.0625,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.75,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.875,
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": 0.01,
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 0.02,
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.03,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 1048576,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 2097152,
    "DCGM_FI_PROF_NVLINK_TX_BYTES": 3145728,
    "DCGM_FI_PROF_NVLINK_RX_BYTES": 4194304,
}
"""Every field that is read, as exporters before DCGM 4.6 name it."""

RENAMED: dict[str, str] = {
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
    "DCGM_FI_PROF_SM_ACTIVE": "DCGM_FI_PROF_SM_UTIL_RATIO",
    "DCGM_FI_PROF_SM_OCCUPANCY": "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": "DCGM_FI_PROF_INT_UTIL_RATIO",
    "DCGM_FI_PROF_DRAM_ACTIVE": "DCGM_FI_PROF_DRAM_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": "DCGM_FI_PROF_FP64_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": "DCGM_FI_PROF_FP32_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": "DCGM_FI_PROF_FP16_UTIL_RATIO",
}
"""Names of DCGM 4.6."""

LABELS: dict[str, str] = {
    "gpu": "0",
    "UUID": UUID,
    "pci_bus_id": "00000000:01:00.0",
    "device": "nvidia0",
    "modelName": "NVIDIA H200",
    "Hostname": "node1",
}

Fault = Literal[
    "none", "slow", "cut", "hang-up", "html", "500", "large", "long-line", "many-lines", "bytes",
    "redirect",
]  # fmt: skip


def text(values: Mapping[str, float | str], *label_sets: Mapping[str, str]) -> str:
    """Metrics text: a row per field and set of labels."""
    lines: list[str] = []
    for name, value in values.items():
        kind = "counter" if "TOTAL" in name else "gauge"
        lines += [f"# HELP {name} Help of it.", f"# TYPE {name} {kind}"]
        for labels in label_sets or (LABELS,):
            inside = ",".join(f'{key}="{label}"' for key, label in labels.items())
            lines.append(f"{name}{{{inside}}} {value}")
    return "\n".join(lines) + "\n"


@dataclass
class Exporter:
    """What the exporter answers next, and how often it was asked."""

    url: str
    text: str
    fault: Fault = "none"
    requests: int = 0


@contextmanager
def exporter(first: str) -> Generator[Exporter]:
    server = _Server(("127.0.0.1", 0), _Handler)
    state = server.state = Exporter(f"http://127.0.0.1:{server.server_port}/metrics", first)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    state: Exporter


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        state = cast("_Server", self.server).state
        state.requests += 1
        body = b"\xff\xfe\n" if state.fault == "bytes" else state.text.encode()
        if state.fault == "large":
            body = b"# filler\n" * 2_000_000
        if state.fault == "long-line":
            body = b'DCGM_FI_DEV_SM_CLOCK{pod="' + b'\\"' * 1_000_000 + b'"} 1\n'
        if state.fault == "many-lines":
            body = b"DCGM_FI_DEV_SM_CLOCK 1\n" * 100_000
        self.send_response({"500": 500, "redirect": 302}.get(state.fault, 200))
        if state.fault == "redirect":
            self.send_header("Location", "/elsewhere")
        html = state.fault == "html"
        self.send_header("Content-Type", "text/html" if html else "text/plain; version=0.0.4")
        if state.fault not in ("cut", "slow"):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self._send(state.fault, body)

    def _send(self, fault: Fault, body: bytes) -> None:
        try:
            if fault == "slow":
                for byte in body[:100]:
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.02)
            else:
                self.wfile.write(body[: -len(body) // 2] if fault in ("cut", "hang-up") else body)
        except OSError:
            self.close_connection = True  # the client gave up, as it should

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing on the terminal."""
