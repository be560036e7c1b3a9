"""A small API server of Kubernetes over real HTTP, for one test or many."""

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from kube_objects import CHOOSER, Call, KubeApi, Object, RefusedError
from kubernetes.client import ApiClient, Configuration

from advisor_kubernetes.cluster import Cluster


def cluster_at(url: str) -> Cluster:
    """An API server as our programs see it; who does not answer is asked once."""
    configuration = Configuration(host=url)
    configuration.retries = 0
    return Cluster(ApiClient(configuration))


@contextmanager
def kube_api() -> Generator[KubeApi]:
    """The server on a free port, until the end of the block."""
    api = KubeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:
                self.close_connection = True

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            call = Call(
                self.command,
                parts.path,
                dict(parse_qsl(parts.query)),
                json.loads(text) if text else None,
            )
            api.calls.append(call)
            try:
                api.refuse(call)
                if call.query.get("watch") == "true":
                    self._stream(api.watch(call.path, call.query))
                    return
                self._send(200, _answer_to(api, call))
            except RefusedError as error:
                said = {"kind": "Status", "code": error.status, "message": error.message}
                self._send(error.status, said)

        def _send(self, status: int, body: Object) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.wfile.flush()

        def _stream(self, events: Iterator[Object]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            for event in events:
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield api
    finally:
        api.end_watches()
        server.shutdown()
        server.server_close()


def _answer_to(api: KubeApi, call: Call) -> Object:
    if call.path.endswith("/selfsubjectreviews"):
        return {"status": {"userInfo": {"username": CHOOSER}}}
    if call.method == "POST":
        return api.create(call.path, call.body)
    if call.method == "PATCH":
        return api.change(call.path.removesuffix("/status"), call.body)
    if call.method == "PUT":
        return api.change(call.path, [{"op": "replace", "path": "", "value": call.body}])
    if call.method == "DELETE":
        api.delete(call.path)
        return {"kind": "Status", "status": "Success"}
    if call.path in api.objects:
        return api.get(call.path)
    if call.path.endswith(("/pods", "/nodes", "/events", "/resourcequotas")):
        return api.list(call.path, call.query)
    raise RefusedError(404, "NotFound")
