"""The Helm chart, rendered by Helm's own engine, and held against Kubernetes' own schemas."""

import base64
import functools
import re
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import kubernetes_validate
import pytest
import yaml
from serving import serving
from typer.testing import CliRunner
from waiting import eventually

from advisor_cli.app import app

helm: Any = pytest.importorskip("helm_python", reason="needs the package helm-python-sdk")

KUBERNETES = Path(__file__).parents[2] / "api/kubernetes"
CHART = KUBERNETES / "chart"
OTHERWISE: Mapping[str, Any] = {
    "logFormat": "json",
    "image": {"repository": "registry.example/advisor", "tag": "2", "pullSecrets": [{"name": "p"}]},
    "certificates": {"certManager": False, "caBundle": "YWJj"},
    "service": {"databaseSecretName": "advisor-database", "storageClassName": "fast"},
    "webhook": {
        "failurePolicy": "Ignore",
        "withoutAdvice": "hold",
        "clientCaSecret": "api-server",
        "hostPaths": ["/data"],
        "mixedNodes": True,
    },
    "agent": {"runtimeHandler": "", "priorityClassName": ""},
    "networkPolicy": {"apiServer": ["10.0.0.1/32"]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}
NEWEST = int(kubernetes_validate.latest_version().split(".")[1])
VERSIONS = [f"1.{minor}" for minor in range(30, NEWEST + 1)]
CUSTOM = ("cert-manager.io/v1", "monitoring.coreos.com/v1")


def rendered(**values: Any) -> list[dict[str, Any]]:
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="advisor", namespace="gpu-sharing")
    texts = (text for name, text in files.items() if name.endswith(".yaml"))
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


@pytest.fixture(scope="module")
def default() -> list[dict[str, Any]]:
    return rendered()


@pytest.fixture(scope="module")
def otherwise() -> list[dict[str, Any]]:
    return rendered(**OTHERWISE)


def one(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    [found] = [d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return found


def taken(documents: list[dict[str, Any]], version: str) -> set[str]:
    """Kinds of the documents that a Kubernetes has looked at, and found nothing wrong with."""
    own = [document for document in documents if document["apiVersion"] not in CUSTOM]
    for document in own:
        kubernetes_validate.validate(document, version, strict=True)
    return {document["kind"] for document in own}


def pod_specs(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents:
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield document["metadata"]["name"], spec["template"]["spec"]


def test_helm_finds_nothing_wrong() -> None:
    found = helm.lint(str(CHART))
    assert found["errors"] == []
    assert [m["error"] for m in found["messages"]] == ["icon is recommended"]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_it(
    version: str, default: list[dict[str, Any]], otherwise: list[dict[str, Any]]
) -> None:
    for documents in (default, otherwise):
        kinds = taken(documents, version)
        assert {"DaemonSet", "Deployment", "MutatingWebhookConfiguration"} <= kinds


@pytest.mark.parametrize(("file", "since"), [("two-pods.yaml", 30), ("shared-claim.yaml", 34)])
def test_kubernetes_takes_the_examples(file: str, since: int) -> None:
    documents = list(yaml.safe_load_all((KUBERNETES / "examples" / file).read_text()))
    kinds = {document["kind"] for document in documents}
    assert "Pod" in kinds
    knowing = [version for version in VERSIONS if int(version.split(".")[1]) >= since]
    assert knowing
    for version in knowing:
        assert taken(documents, version) == kinds


@pytest.mark.parametrize(
    "values",
    [
        {"certificates": {"certManager": False}},
        {"webhook": {"failurePolicy": "Perhaps"}},
        {"webhook": {"excludedNamespaces": ["mine"]}},
        {"agents": {}},
        {"logFormat": "xml"},
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(helm.HelmError):
        rendered(**values)


def test_a_dead_webhook_never_stops_the_cluster(default: list[dict[str, Any]]) -> None:
    [hook] = one(default, "MutatingWebhookConfiguration", "advisor-webhook")["webhooks"]
    assert (hook["timeoutSeconds"], hook["failurePolicy"]) == (2, "Fail")
    assert (hook["sideEffects"], hook["admissionReviewVersions"]) == ("None", ["v1"])
    [rule] = hook["namespaceSelector"]["matchExpressions"]
    assert (rule["key"], rule["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert {"kube-system", "gpu-sharing"} <= set(rule["values"])
    assert hook["rules"][0]["resources"] == ["pods", "pods/ephemeralcontainers"]


def test_who_calls_the_webhook_trusts_its_certificate(
    default: list[dict[str, Any]], otherwise: list[dict[str, Any]]
) -> None:
    hook = one(default, "MutatingWebhookConfiguration", "advisor-webhook")
    spec = one(default, "Certificate", "advisor-webhook")["spec"]
    assert hook["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "gpu-sharing/advisor-webhook"
    }
    assert "advisor-webhook.gpu-sharing.svc" in spec["dnsNames"]
    made = (spec["issuerRef"]["name"], spec["secretName"])
    assert made == ("advisor-webhook", "advisor-webhook-tls")
    [given] = one(otherwise, "MutatingWebhookConfiguration", "advisor-webhook")["webhooks"]
    assert given["clientConfig"]["caBundle"] == "YWJj"
    assert "Certificate" not in {document["kind"] for document in otherwise}


RIGHTS = {
    "advisor-agent": {
        ("pods", "list"), ("pods", "watch"), ("nodes", "patch"), ("nodes/status", "patch"),
        ("events", "create"),
    },
    "advisor-webhook": {
        *((kind, "list") for kind in ("pods", "nodes", "resourcequotas")),
        *((kind, "watch") for kind in ("pods", "nodes", "resourcequotas")),
        ("pods", "patch"), ("events", "create"),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHTS)
def test_rights_are_what_is_called(name: str, default: list[dict[str, Any]]) -> None:
    """No star, no secret, no exec; a test of the agent holds its calls against the same."""
    rules = one(default, "ClusterRole", name)["rules"]
    assert all(rule["apiGroups"] == [""] for rule in rules)
    given = {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
    assert given == RIGHTS[name]
    binding = one(default, "ClusterRoleBinding", name)
    assert binding["roleRef"]["name"] == name
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": name, "namespace": "gpu-sharing"}
    ]


def test_the_lease_is_all_that_the_webhook_writes_at_home(default: list[dict[str, Any]]) -> None:
    create, change = one(default, "Role", "advisor-webhook")["rules"]
    assert create["verbs"] == ["create"]
    assert (change["resourceNames"], change["verbs"]) == (["advisor-chooser"], ["get", "update"])


def test_only_the_agent_is_root(default: list[dict[str, Any]]) -> None:
    for name, spec in pod_specs(default):
        [container] = spec["containers"]
        context = container["securityContext"]
        limits = (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"])
        assert (*limits, context["capabilities"]["drop"]) == (True, False, ["ALL"])
        if name == "advisor-agent":
            assert "privileged" not in context
            assert "SYS_ADMIN" not in context["capabilities"]["add"]
        else:
            assert spec["securityContext"]["runAsNonRoot"]
            assert "hostPID" not in spec
        assert spec.get("automountServiceAccountToken", True) == ("serviceAccountName" in spec)


def test_everything_that_is_mounted_or_chosen_is_there(
    default: list[dict[str, Any]], otherwise: list[dict[str, Any]]
) -> None:
    for documents in (default, otherwise):
        names = {(d["kind"], d["metadata"]["name"]) for d in documents}
        for _, spec in pod_specs(documents):
            volumes = {volume["name"] for volume in spec["volumes"]}
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            for volume in spec["volumes"]:
                if claim := volume.get("persistentVolumeClaim"):
                    assert ("PersistentVolumeClaim", claim["claimName"]) in names
            if account := spec.get("serviceAccountName"):
                assert ("ServiceAccount", account) in names
        labels = [d["spec"]["template"]["metadata"]["labels"] for d in documents if _runs(d)]
        for document in documents:
            if selector := _selector(document):
                assert any(selector.items() <= found.items() for found in labels), document


def _runs(document: dict[str, Any]) -> bool:
    return document["kind"] in ("Deployment", "DaemonSet")


def _selector(document: dict[str, Any]) -> dict[str, str]:
    spec = document.get("spec", {})
    found = cast("dict[str, Any]", spec.get("podSelector") or spec.get("selector") or {})
    return found.get("matchLabels", found)


def test_commands_have_the_options_that_are_given(otherwise: list[dict[str, Any]]) -> None:
    """A pod that starts with an unknown option ends at once, on every node."""
    for name, spec in pod_specs(otherwise):
        args = spec["containers"][0]["args"]
        if (words := [word for word in args if not word.startswith("--")][:2]) == ["retrain"]:
            continue  # tested with its own part
        done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300", "NO_COLOR": "1"})
        known = set(re.findall(r"--[a-z-]+", done.output))
        given = {word.partition("=")[0] for word in args if word.startswith("--")}
        assert given <= known, (name, given - known)


def test_prometheus_gets_what_it_needs(otherwise: list[dict[str, Any]]) -> None:
    """The schema of a ServiceMonitor is not Kubernetes' own: its fields are held against a list."""
    monitors = [d for d in otherwise if d["kind"] == "ServiceMonitor"]
    services = [d for d in otherwise if d["kind"] == "Service"]
    known = {"path", "port", "scheme", "tlsConfig", "authorization", "honorLabels"}
    assert len(monitors) == 3
    for monitor in monitors:
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        assert set(monitor["spec"]) == {"selector", "endpoints"}
        chosen = monitor["spec"]["selector"]["matchLabels"]
        [service] = [s for s in services if chosen.items() <= s["metadata"]["labels"].items()]
        [endpoint] = monitor["spec"]["endpoints"]
        assert set(endpoint) <= known
        assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    agent = one(otherwise, "ServiceMonitor", "advisor-agent")["spec"]["endpoints"][0]
    assert agent["honorLabels"] is True


def test_policies_let_in_who_asks(
    default: list[dict[str, Any]], otherwise: list[dict[str, Any]]
) -> None:
    ports = {
        name: spec["containers"][0]["ports"][0]["containerPort"]
        for name, spec in pod_specs(default)
        if "ports" in spec["containers"][0]
    }
    for name, port in ports.items():
        [ingress] = one(default, "NetworkPolicy", name)["spec"]["ingress"]
        assert [p["port"] for p in ingress["ports"]] == [port]
    [asked] = one(default, "NetworkPolicy", "advisor-service")["spec"]["ingress"]
    parts = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for peer in asked["from"]
        if "podSelector" in peer
    ]
    assert parts == ["webhook", "agent"]
    [asked] = one(otherwise, "NetworkPolicy", "advisor-webhook")["spec"]["ingress"]
    assert {"ipBlock": {"cidr": "10.0.0.1/32"}} in asked["from"]


def test_the_script_makes_certificates_that_are_trusted(tmp_path: Path) -> None:
    done = subprocess.run(
        [KUBERNETES / "make-certificates.sh", "advisor", "gpu-sharing"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    secret = yaml.safe_load(done.stdout)
    kubernetes_validate.validate(secret, VERSIONS[-1], strict=True)
    assert secret["metadata"] == {"name": "advisor-webhook-tls", "namespace": "gpu-sharing"}
    files = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert base64.b64decode((tmp_path / "advisor-ca-bundle.txt").read_text()) == files["ca.crt"]
    said = subprocess.run(
        ["openssl", "verify", "-CAfile", "ca.crt", "-purpose", "sslserver",
         "-verify_hostname", "advisor-webhook.gpu-sharing.svc", "tls.crt"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        tmp_path / "tls.crt", tmp_path / "tls.key"
    )


@pytest.mark.slow
def test_the_service_answers_its_probes(default: list[dict[str, Any]], tmp_path: Path) -> None:
    [spec] = [spec for name, spec in pod_specs(default) if name == "advisor-service"]
    [container] = spec["containers"]
    with serving(tmp_path, container["args"][1:]) as served:
        port = served.url.rpartition(":")[2]
        for kind in ("readinessProbe", "livenessProbe"):
            probe = container[kind]["httpGet"]
            headers = {header["name"]: header["value"] for header in probe["httpHeaders"]}
            ask = functools.partial(
                httpx.get, f"http://127.0.0.1:{port}{probe['path']}", headers=headers, timeout=30
            )
            # A kubelet asks again while the model loads.
            eventually(lambda ask=ask: ask().status_code != 503, within_s=60)
            assert ask().status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}/v1/jobs", headers=headers).status_code == 401
