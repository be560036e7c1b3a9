"""Which server a command line starts, and where its page is."""

import os
import shlex
import socket

import pytest

from advisor.scrape.fetch import listening_urls
from advisor.scrape.page import server_of

VLLM, TRTLLM = "vllm:generation_tokens_total", "trtllm_request_success_total"
TGI, TEI = "tgi_request_generated_tokens_sum", "te_request_success"


@pytest.mark.parametrize(
    ("command", "counter", "port"),
    [
        ("vllm serve Qwen/Qwen3-8B --port 8010", VLLM, 8010),
        ("/env/bin/python3.12 /env/bin/vllm serve m --port 1 --port=8011", VLLM, 8011),
        ("python -u -m vllm.entrypoints.openai.api_server --model m", VLLM, 8000),
        ("python -Xdev -umvllm.entrypoints.openai.api_server", VLLM, 8000),
        ("python lib/vllm/entrypoints/openai/api_server.py --port 9", VLLM, 9),
        ("vllm serve m --config serve.yaml --port 8012", VLLM, 8012),
        ("vllm serve m --config serve.yaml", VLLM, None),
        ("vllm serve m --uds /tmp/s --port 8000", VLLM, None),
        ("vllm serve m --disable_log_stats", VLLM, None),
        ("vllm serve m --port 0", VLLM, None),
        ("vllm serve m --host 0.0.0.0 --port 9", VLLM, 9),
        ("vllm serve m --host 10.0.0.5", VLLM, None),
        ("env -u A B=1 numactl -N 0 --membind=0 nice -n 5 vllm serve m", VLLM, 8000),
        ("timeout -s INT 60 taskset -c 0-3 stdbuf -oL vllm serve m", VLLM, 8000),
        ("uv run --python 3.12 vllm serve m", VLLM, 8000),
        ("conda run -n sglang --no-capture-output vllm serve m", VLLM, 8000),
        ("bash -c 'cd /m && exec vllm serve m --port 8013 > log 2>&1'", VLLM, 8013),
        ("bash -euo pipefail -c 'A=1 exec vllm serve m \\\n --port 8014'", VLLM, 8014),
        ("sh -c 'vllm serve m --port $PORT'", VLLM, None),
        ("sh -c 'vllm serve \"\" --port 9 | tee log'", VLLM, 9),
        ("python -m sglang.launch_server", "sglang:generation_tokens_total", None),
        ("sglang serve --enable-metrics", "sglang:generation_tokens_total", 30000),
        ("tritonserver --http-port 8000", "nv_inference_count", 8002),
        ("tritonserver --metrics-port=9 --allow-metrics=true", "nv_inference_count", 9),
        ("tritonserver --allow-metrics FALSE", "nv_inference_count", None),
        ("tritonserver --allow-metrics=0", "nv_inference_count", None),
        ("text-generation-launcher -p 8080 --prometheus-port 9000", TGI, 8080),
        ("text-generation-launcher -p8081", TGI, 8081),
        ("text-generation-router --port=8082", TGI, 8082),
        ("text-embeddings-router --model-id m", TEI, 3000),
        ("llama-server --metrics --host /tmp/s.sock", "llamacpp:tokens_predicted_total", None),
        ("llama-server -m x.gguf --metrics --port 9", "llamacpp:tokens_predicted_total", 9),
        ("llama-server -m x.gguf", "llamacpp:tokens_predicted_total", None),
        ("trtllm-llmapi-launch trtllm-serve serve m --port 9", TRTLLM, 9),
        ("trtllm-serve m", TRTLLM, 8000),
        ("lmdeploy serve api_server m", "lmdeploy:generation_tokens_total", 23333),
        ("lmdeploy serve api_server m --disable-metrics", "lmdeploy:generation_tokens_total", None),
        ("torchserve --foreground --ts-config c", "ts_inference_requests_total", None),
        ("ollama serve", None, None),
    ],
)
def test_a_server_is_its_program_or_module(
    command: str, counter: str | None, port: int | None
) -> None:
    found = server_of(shlex.split(command))
    assert found is not None
    server, url = found
    assert (server.counter, url) == (counter, port and f"http://127.0.0.1:{port}{server.path}")


@pytest.mark.parametrize(
    "command",
    [
        "/opt/conda/envs/vllm/bin/python train.py --lr 1",
        "python train.py --backend vllm --cmd 'vllm serve m'",
        "python /src/vllm/train.py",
        "python -c 'import vllm' serve",
        "python -m vllm_train serve",
        "vllm bench serve --port 8000",
        "vllm chat",
        "ollama run m",
        "trtllm-serve disaggregated -c config.yaml",
        "lmdeploy serve proxy",
        "cat vllm serve",
        "conda run -n vllm python train.py",
        "bash -c 'vllm serve m; python train.py'",
        "bash -c 'open \" quote'",
        "bash vllm serve",
        "timeout 60",
        "",
    ],
)
def test_a_word_elsewhere_makes_no_server(command: str) -> None:
    assert server_of(shlex.split(command)) is None


def test_addresses_of_a_process_are_those_that_it_alone_listens_on() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("0.0.0.0", 0)) as every,
        socket.create_connection(one.getsockname()),
    ):
        ours = {f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in (one, every)}
        assert ours <= {*listening_urls([os.getpid()])}
        assert ours.isdisjoint(listening_urls([os.getppid()]))
    assert ours.isdisjoint(listening_urls([os.getpid()]))
