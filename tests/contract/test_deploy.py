"""The files of deploy/: as far as they can be checked without a container engine."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import typer
import yaml
from serving import Served, serving
from typer.testing import CliRunner

from advisor.client import Client
from advisor.files import gpu_lock
from advisor.runtime.job_process import CONTROLLERS, OURS
from advisor.settings import HOST_FOLDER, read_settings
from advisor.wire.requests import RecommendationRequest
from advisor_cli.learn.train import retrain

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = DEPLOY / "grafana/dashboard.json"


def program(name: str, package: str) -> str:
    """The path of a program, or a skip that names its Debian package."""
    if (found := shutil.which(name)) is None:
        pytest.skip(f"needs {name} (Debian package {package})")
    return found


def run(*command: str | Path, **more: Any) -> str:
    """What a program said, if it was content."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def get(url: str, **query: str) -> httpx.Response:
    return httpx.get(url, params=query, trust_env=False)


# systemd


def unit() -> dict[str, list[str]]:
    """Settings of the unit by name; each may come several times."""
    settings: dict[str, list[str]] = {}
    for line in (DEPLOY / "advisor.service").read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    verify = program("systemd-analyze", "systemd")
    text = (DEPLOY / "advisor.service").read_text()
    # The command is checked for being there, and it is installed where the unit is.
    (tmp_path / "advisor.service").write_text(text.replace("/opt/advisor/bin/advisor", "/bin/true"))
    said = run(verify, "verify", "--man=no", tmp_path / "advisor.service").splitlines()
    # Debian 12 has 252. What it does not know, it leaves out; the unit says what then.
    newer, version = "'DelegateSubgroup'", int(run(verify, "--version").split()[1])
    assert [line for line in said if newer not in line or version >= 254] == []


def test_the_unit_stays_hardened() -> None:
    """Systemd's own measure of exposure, from 0 to 10, does not grow unnoticed."""
    analyze = program("systemd-analyze", "systemd")
    told = run(analyze, "security", "--offline=yes", "--threshold=40", DEPLOY / "advisor.service")
    assert "Overall exposure level" in told


UNIT = {
    # A user of its own, with no way to more.
    **dict.fromkeys(("User", "Group"), "advisor"),
    "NoNewPrivileges": "yes",
    **dict.fromkeys(("CapabilityBoundingSet", "AmbientCapabilities"), ""),
    "ProtectSystem": "strict",
    # A stop or restart ends the server alone, and leaves the folder with the MPS sockets.
    "KillMode": "process",
    "RuntimeDirectoryPreserve": "yes",
    "OOMPolicy": "continue",
    "Restart": "on-failure",
    # Groups of jobs lie next to that of our own processes, under the name that is looked for.
    "DelegateSubgroup": OURS,
    # What would hide devices, user ids, or the MPS daemon and the locks of the host is off.
    **dict.fromkeys(("PrivateTmp", "PrivateDevices", "PrivateUsers"), "no"),
    "ReadWritePaths": "/tmp -/run/advisor",
    # It is noticed that it hangs, and waited for while it raises its database.
    "Type": "notify",
    "WatchdogSec": "30",
}
ABSENT = ("ProtectControlGroups", "ProtectClock", "DeviceAllow", "DevicePolicy")


def test_the_unit_keeps_what_launches_and_gpus_need() -> None:
    settings = unit()
    assert {name: settings[name] for name in UNIT} == {n: [value] for n, value in UNIT.items()}
    assert set(settings["Delegate"][0].split()) == set(CONTROLLERS)
    assert not {*ABSENT, "MemoryDenyWriteExecute"} & {*settings}


def test_the_unit_can_write_where_it_is_told_to() -> None:
    settings = unit()
    variables = dict(text.strip('"').split("=", 1) for text in settings["Environment"])
    assert variables["ADVISOR_HOME"] == f"/var/lib/{settings['StateDirectory'][0]}"
    assert variables["ADVISOR_RUNTIME_DIR"] == f"/run/{settings['RuntimeDirectory'][0]}"
    assert variables["ADVISOR_JOBS"].startswith(f"/etc/{settings['ConfigurationDirectory'][0]}/")
    option, path = variables["ADVISOR_SERVE_OPTIONS"].split()
    assert option == "--socket"
    # Below the folder of the group, which systemd would take for itself.
    assert variables["ADVISOR_RUNTIME_DIR"] == str(HOST_FOLDER / "service")
    made = (DEPLOY / "advisor.tmpfiles.conf").read_text()
    assert all(part in made for part in (f"d {Path(path).parent}", f"d {HOST_FOLDER} "))


def test_the_group_shares_a_folder_for_locks_and_nobody_else_enters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program("systemd-tmpfiles", "systemd")
    if os.geteuid() != 0:
        pytest.skip("needs root, whose folders they are")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text("root:x:0:\nadvisor:x:54323:\n")
    users = "root:x:0:0::/:/bin/sh\nadvisor:x:54322:54323::/:/bin/sh\n"
    (tmp_path / "etc/passwd").write_text(users)
    run(made, "--create", f"--root={tmp_path}", DEPLOY / "advisor.tmpfiles.conf")
    folder = tmp_path / "run/advisor"
    shared, own = (0o3770, 0, 54323), (0o750, 54322, 54323)
    found = [path.stat() for path in (folder, folder / "locks", folder / "api")]
    assert [(f.st_mode & 0o7777, f.st_uid, f.st_gid) for f in found] == [shared, shared, own]
    monkeypatch.setattr("advisor.settings.HOST_FOLDER", folder)
    settings = read_settings({})
    assert (settings.runtime_dir, settings.lock_dir) == (folder / "0", folder / "locks")
    with gpu_lock(settings.lock_dir, "GPU-1"):
        (lock,) = (folder / "locks").iterdir()
        assert lock.stat().st_mode & 0o777 == 0o660


# Containerfile

INSTRUCTIONS = {
    "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN",
    "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip
"""Known ones; without ADD, which fetches and unpacks, and ONBUILD and MAINTAINER."""


BY_DIGEST = r"[a-z/]+:v?\d[\w.-]*@sha256:[0-9a-f]{64}"
"""The tag is for who reads it."""


def containerfile() -> list[tuple[str, str]]:
    """Instructions and their arguments, with continued lines joined."""
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [cast("Any", tuple(line.split(maxsplit=1))) for line in joined.splitlines() if line]


def last_stage() -> dict[str, list[str]]:
    """Arguments of the last stage's instructions by name."""
    found: dict[str, list[str]] = {}
    for name, arguments in containerfile():
        if name == "FROM":
            found = {}
        found.setdefault(name, []).append(arguments)
    return found


def test_the_containerfile_is_one() -> None:
    lines = containerfile()
    assert {name for name, _ in lines} <= INSTRUCTIONS
    bases = [arguments.split()[0] for name, arguments in lines if name == "FROM"]
    assert all(re.fullmatch(BY_DIGEST, base) for base in bases), bases
    assert not re.search(r"https?://(?!127\.0\.0\.1)|curl|wget", str(lines))


def test_the_containerfile_copies_what_is_there() -> None:
    """Each source is in the checkout and let through to the engine; all that is installed is."""
    let_in = (DEPLOY / "Containerfile.dockerignore").read_text().split()
    copied = [
        source
        for name, arguments in containerfile()
        if name == "COPY" and "--from" not in arguments
        for source in arguments.split()[:-1]
    ]
    assert all((ROOT / source).exists() for source in copied)
    assert "hatch_build.py" in copied  # without it there is no wheel
    assert {f"!{source}" for source in copied} == {line for line in let_in if line[0] == "!"}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    packed = [*wheel["wheel"]["only-include"], *wheel["wheel"]["force-include"]]
    assert [path for path in packed if not any(Path(path).is_relative_to(c) for c in copied)] == []


def test_the_container_runs_as_nobody_special() -> None:
    stage = last_stage()
    assert (stage["USER"], stage["VOLUME"]) == (["10001:10001"], ["/var/lib/advisor"])
    names = [name for name, _ in containerfile()]
    assert names.index("USER") < names.index("ENTRYPOINT") < names.index("CMD")
    assert not re.search(r"(?i)password|secret|token", str([*stage["ENV"], *stage["RUN"]]))


def test_the_container_gets_what_was_tested_by_its_hash() -> None:
    """Wheels of a lock and nothing beside it; advisor itself is made without a download."""
    arguments = dict(text.split("=", 1) for name, text in containerfile() if name == "ARG")
    installs = [
        text.split("pip install", 1)[1]
        for name, text in containerfile()
        if name == "RUN" and "pip install" in text
    ]
    packages, own = installs
    assert {"--require-hashes", "--only-binary"} <= set(packages.split())
    assert '-r "requirements/${LOCK}.txt"' in packages
    assert {"--no-deps", "--no-build-isolation", "."} <= set(own.split())
    assert (ROOT / "requirements" / f"{arguments['LOCK']}.txt").is_file()


@pytest.mark.slow
def test_the_command_of_the_container_works(tmp_path: Path) -> None:
    stage = last_stage()
    options = json.loads(stage["CMD"][0])
    assert json.loads(stage["ENTRYPOINT"][0]) == ["advisor"]
    check = json.loads(stage["HEALTHCHECK"][0].partition("CMD ")[2])
    with serving(tmp_path, options[1:]) as served:
        port = served.url.rpartition(":")[2]
        python, flag, code = check
        assert ":8765/" in code
        assert python == "python"
        run(sys.executable, flag, code.replace(":8765/", f":{port}/"))
        url = f"http://127.0.0.1:{port}"
        assert get(f"{url}/v1/jobs").status_code == 401
        with Client(url, served.token("me", "read")) as client:
            assert client.jobs()


# compose


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_compose_names_what_is_there() -> None:
    spec = compose()
    for service in spec["services"].values():
        assert set(service.get("secrets", [])) <= set(spec["secrets"])
        assert set(service.get("depends_on", {})) <= set(spec["services"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), volume
            else:
                assert source in spec["volumes"]
        for ready in service.get("depends_on", {}).values():
            assert ready["condition"] in {"service_healthy", "service_completed_successfully"}
    build = spec["services"]["advisor"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_compose_opens_loopback_only() -> None:
    ports = {name: service.get("ports", []) for name, service in compose()["services"].items()}
    assert all(port.startswith("127.0.0.1:") for found in ports.values() for port in found)
    assert ports["postgres"] == ports["migrate"] == []


def test_compose_keeps_secrets_in_files() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    assert all(secret["file"].startswith("secrets/") for secret in compose()["secrets"].values())
    assert not re.search(r"(?i)(password|token)[\w]*:\s*(?!/run/secrets/|\{file)\S", text)
    assert "secrets/" in (DEPLOY / ".gitignore").read_text().splitlines()


def test_compose_migrates_first() -> None:
    services = compose()["services"]
    assert services["migrate"]["command"] == ["data", "migrate"]
    conditions = {n: d["condition"] for n, d in services["advisor"]["depends_on"].items()}
    assert conditions["migrate"] == "service_completed_successfully"
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_compose_hardens_what_it_can() -> None:
    services = compose()["services"]
    hardened = {
        "user": last_stage()["USER"][0], "read_only": True, "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }  # fmt: skip
    for name in ("advisor", "migrate"):
        assert {**services[name], **hardened} == services[name]
    images = {s["image"] for n, s in services.items() if n not in {"advisor", "migrate"}}
    assert all(re.fullmatch(BY_DIGEST, image) for image in images), images


def test_compose_hands_the_password_over(tmp_path: Path) -> None:
    """Run by a real shell, the entry point gives the command its arguments and the password."""
    (tmp_path / "advisor").write_text('#!/bin/sh\necho "$PGPASSWORD|$*"\n')
    (tmp_path / "advisor").chmod(0o755)
    (tmp_path / "password").write_text("s3 cret\n")
    entry = [part.replace("$$", "$") for part in compose()["services"]["advisor"]["entrypoint"]]
    entry[2] = entry[2].replace("/run/secrets/postgres_password", str(tmp_path / "password"))
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert run(*entry, "data", "two words", env=path) == "s3 cret|data two words\n"
    (tmp_path / "password").unlink()
    done = subprocess.run([*entry, "serve"], env=path, capture_output=True, check=False)
    assert done.returncode != 0
    assert done.stdout == b""


def test_prometheus_reaches_the_service() -> None:
    spec = compose()["services"]
    [job] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    command = spec[host]["command"]
    assert command[command.index("--allowed-host") + 1] == host
    assert spec[host]["ports"][0].endswith(f":{port}")
    secret = Path(job["authorization"]["credentials_file"])
    assert secret.parent == Path("/run/secrets")
    assert secret.name in spec["prometheus"]["secrets"]


# Prometheus and Grafana


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return group["rules"]


def panels() -> list[dict[str, Any]]:
    return json.loads(DASHBOARD.read_text())["panels"]


def queries() -> dict[str, str]:
    """PromQL of every panel and alert, by where it stands, with Grafana's variables filled in."""
    found = {rule["alert"]: rule["expr"] for rule in alerts()}
    for panel in panels():
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            found[f"{panel['title']} {target['refId']}"] = text
    return found


@pytest.mark.slow
def test_every_query_names_a_metric_that_there_is(service: Served) -> None:
    # A family without samples still has its line of help.
    with Client(service.url) as client:
        client.recommend(RecommendationRequest.of("bert-train", "vit-infer"))
    text = get(f"{service.url}/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    known = {"up"} | {
        name + end
        for name, kind in kinds.items()
        for end in (["_bucket", "_count", "_sum"] if kind == "histogram" else [""])
    }
    for place, query in queries().items():
        names = set(re.findall(r"\b(?:advisor_\w+|up)\b", re.sub(r'"[^"]*"', "", query)))
        assert names, place
        assert names <= known, place
    routes = set(re.findall(r'route="([^"$]+)"', str(queries())))
    assert routes <= set(get(f"{service.url}/v1/openapi.json").json()["paths"])
    states = set(re.findall(r'advisor_launches\{[^}]*state="(\w+)"', str(queries())))
    assert states <= set(re.findall(r'advisor_launches\{state="(\w+)"', text))


@pytest.mark.slow
def test_promtool_is_content() -> None:
    promtool = program("promtool", "prometheus")
    run(promtool, "check", "config", "--syntax-only", PROMETHEUS / "prometheus.yml")
    assert f"{len(alerts())} rules" in run(promtool, "check", "rules", PROMETHEUS / "alerts.yml")
    run(promtool, "test", "rules", "alerts_test.yml", cwd=PROMETHEUS)


def test_every_alert_has_a_test_and_says_what_to_do() -> None:
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    fired = {t["alertname"] for test in tests for t in test["alert_rule_test"] if t["exp_alerts"]}
    assert fired == {rule["alert"] for rule in alerts()}
    assert all({"summary", "action"} <= set(rule["annotations"]) for rule in alerts())


def test_every_panel_can_be_parsed(tmp_path: Path) -> None:
    promtool = program("promtool", "prometheus")
    rules = [
        {"record": f"query:{number}", "expr": query}
        for number, query in enumerate(queries().values())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules" in run(promtool, "check", "rules", file)


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert len({panel["id"] for panel in panels()}) == len(panels()) > 10
    cells = [
        (x, y)
        for panel in panels()
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert variables == {"datasource", "instance"}
    assert {panel["datasource"]["uid"] for panel in panels()} == {"${datasource}"}
    sources = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/datasources/advisor.yaml").read_text()
    )["datasources"]
    assert sources[0]["url"] == "http://prometheus:9090"
    provided = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/dashboards/advisor.yaml").read_text()
    )["providers"]
    mounted = compose()["services"]["grafana"]["volumes"]
    assert any(f":{provided[0]['options']['path']}:" in volume for volume in mounted)


# The files of training/cron/: what a scheduler takes, and what `advisor retrain` takes.


CRON = Path(__file__).parents[2] / "training/cron"
COMMAND = "/opt/advisor/bin/advisor retrain"


def options_of(text: str) -> set[str]:
    """Options that a line gives to `advisor retrain`."""
    return set(re.findall(r"--[a-z-]+", text.partition("advisor retrain")[2]))


def cron_unit(name: str) -> dict[str, str]:
    lines = (CRON / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def manifest() -> Any:
    return yaml.safe_load((CRON / "cronjob.yaml").read_text())


def container() -> Any:
    [found] = manifest()["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return found


def systemd_analyze(*words: str | Path) -> str:
    if (program := shutil.which("systemd-analyze")) is None:
        pytest.skip("needs systemd-analyze (Debian package systemd)")
    done = subprocess.run(
        [program, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_option_is_one_of_the_command() -> None:
    """A scheduler finds out at night."""
    app = typer.Typer()
    app.command()(retrain)
    known = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    [line] = [line for line in (CRON / "crontab").read_text().splitlines() if COMMAND in line]
    given = [
        line,
        cron_unit("advisor-retrain.service")["ExecStart"],
        " ".join(container()["command"]),
    ]
    for text in given:
        assert options_of(text)
        assert options_of(text) <= set(re.findall(r"--[a-z-]+", known))


def test_the_crontab_is_five_times_and_a_command() -> None:
    lines = [line for line in (CRON / "crontab").read_text().splitlines() if line]
    [job] = [line for line in lines if not line.startswith("#") and not re.match(r"\w+=", line)]
    assert all(re.fullmatch(r"[0-9*/,-]+", time) for time in job.split()[:5])
    assert COMMAND in job
    assert "%" not in job  # cron makes a new line of it


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name in ("advisor-retrain.service", "advisor-retrain.timer"):
        text = (CRON / name).read_text().replace("/opt/advisor/bin/advisor", "/bin/true")
        (tmp_path / name).write_text(text)
    assert systemd_analyze("verify", "--man=no", *sorted(tmp_path.iterdir())) == ""


def test_the_cron_unit_stays_hardened() -> None:
    said = systemd_analyze(
        "security", "--offline=yes", "--threshold=20", CRON / "advisor-retrain.service"
    )
    assert "Overall exposure level" in said
    assert cron_unit("advisor-retrain.service")["SuccessExitStatus"] == "8", (
        "a busy run is no failure"
    )


def test_the_cronjob_runs_one_at_a_time_as_nobody() -> None:
    spec = manifest()["spec"]
    assert (manifest()["kind"], spec["concurrencyPolicy"]) == ("CronJob", "Forbid")
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container()["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["name"] for mount in container()["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}
