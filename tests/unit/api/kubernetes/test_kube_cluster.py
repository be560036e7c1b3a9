"""The cluster's API at the edge: what is said where there is none, or where it fails."""

import socket
import sys
from pathlib import Path

import pytest
from certificates import make_certificate
from kube_api import cluster_at, kube_api
from kube_objects import away
from typer.testing import CliRunner

from advisor.errors import InputError
from advisor_cli import app as command_line
from advisor_kubernetes.cluster import PODS, ClusterError, connect, list_of


def test_without_a_cluster_it_says_where_one_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    name = "KUBE_CONFIG_DEFAULT_LOCATION"
    module = sys.modules["kubernetes.config.kube_config"]
    monkeypatch.setattr(module, name, str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="set KUBECONFIG"):
        connect()


def test_answers_that_are_none_are_errors_with_a_status() -> None:
    """What the server says is in the message; where nobody answers there is no status."""
    with kube_api() as api:
        api.refuse = away
        with pytest.raises(ClusterError, match=r"503\. away") as refused:
            list_of(cluster_at(api.url), PODS)
        assert refused.value.status == 503
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ClusterError, match="no answer to GET") as absent:
        cluster_at(closed).get(PODS)
    assert absent.value.status is None


def test_serve_says_what_is_wrong_with_its_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A key of another certificate is noticed at the start, not by the API server."""
    one, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "other")
    monkeypatch.setattr(
        "advisor_kubernetes.cluster.connect", lambda: cluster_at("http://127.0.0.1:9")
    )
    options = ["--tls-certificate", str(one.certificate), "--tls-key", str(other.key)]
    done = CliRunner().invoke(command_line.app, ["kubernetes", "serve", *options])
    assert isinstance(done.exception, InputError)
    assert "TLS cannot use" in str(done.exception)
