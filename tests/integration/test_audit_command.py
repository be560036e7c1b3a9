"""`advisor audit` from outside: a fake Prometheus and a real one, an exporter, and files."""

import json
import math
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import exporter
import pytest
import requests
import yaml
from browsing import Visit, browser, picture
from command_line import Advisor, in_its_own
from fake_nvml import FakeNvml
from metrics_server import Samples, metrics_server
from playwright.sync_api import Browser
from reading import answer_of, some
from waiting import ending, eventually

from advisor.errors import InputError
from advisor_audit.sources import read_exporters, record
from advisor_cli.audit import _alone  # pyright: ignore[reportPrivateUsage]

__all__ = ["browser"]


MODEL, HOUR_S = "NVIDIA H100 80GB HBM3", 3600.0

SMALL = {
    "DCGM_FI_DEV_POWER_USAGE": 180,
    "DCGM_FI_DEV_FB_USED": 6000,
    "DCGM_FI_DEV_FB_FREE": 75000,
    "DCGM_FI_DEV_SM_CLOCK": 1980,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.2,
    "DCGM_FI_PROF_SM_ACTIVE": 0.12,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.08,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 8,
}
FULL = SMALL | {
    "DCGM_FI_DEV_POWER_USAGE": 650,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.99,
    "DCGM_FI_PROF_SM_ACTIVE": 0.97,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.6,
}


TEAM = (*[("team<b>", "web", SMALL, 0.0)] * 4, ("team<b>", "train", FULL, 0.0))
"""Team, pod, values and, for servers, by what part they swing."""

SITE = (
    *[("search", "bert-serve", SMALL, 0.7)] * 2,
    ("search", "ranker", SMALL, 0.5),
    *[("vision", "sweep", SMALL, 0.0)] * 3,
    *[("speech", "whisper", SMALL, 0.0)] * 2,
    ("llm", "finetune", FULL, 0.0),
)


def cluster(
    end_s: float,
    hours: float,
    every_s: float = 60,
    pods: Sequence[tuple[str, str, Mapping[str, float], float]] = TEAM,
) -> Samples:
    """Four small jobs and one that fills its card, of one team, or others, all the time."""
    count = int(hours * 3600 / every_s)
    times = [(n, end_s - HOUR_S * hours + every_s * n) for n in range(1, count)]
    found: list[tuple[dict[str, str], Sequence[tuple[float, float]]]] = []
    for n, (team, pod, values, swing) in enumerate(pods):
        labels = {
            "UUID": f"GPU-{n}",
            "modelName": MODEL,
            "Hostname": "node1",
            "namespace": team,
            "pod": f"{pod}-7d9c5b6f4d-x2x7{'klmnpqrst'[n]}",
            "container": "main",
        }
        found += [
            (
                {"__name__": name, **labels},
                [(t, value * (1 + swing * math.sin(k) * ("PROF" in name))) for k, t in times],
            )
            for name, value in values.items()
        ]
    return found


def check(answer: Any) -> None:
    """Four small jobs could have had one card, in hours that were measured."""
    assert answer["now"]["cards"] == answer["now"]["gpus"] == 5
    assert 2 <= answer["shared"]["cards"]["value"] <= 3
    assert answer["shared"]["basis"] == "estimated"
    for low_high in (answer["shared"][name] for name in ("cards", "gpu_hours", "kwh", "kwh_idle")):
        assert low_high["low"] <= low_high["value"] <= low_high["high"]
    assert answer["shared"]["kwh"]["value"] < answer["shared"]["kwh_idle"]["value"]
    assert answer["shared"]["kwh_idle"]["value"] < answer["now"]["kwh"]
    assert {job["job"]: job["fills"] for job in answer["jobs"]} == {"web": False, "train": True}


KEYS = {
    "": "made_at span now held_by shared sets changes jobs left_out first_pairs kept not_seen "
    "to_prove",
    "span": "source begin end step_s slot_s months within objective min_speed requests "
    "received_bytes waits impossible",
    "now": "gpus cards gpu_hours paused_hours free_hours unseen_hours kwh kwh_range free_kwh cost",
    "shared": "basis cards gpu_hours kwh kwh_idle cost predicted_hours apart_hours",
    "held_by": "label taken_for jobs gpu_hours",
    "sets": "basis jobs group gpu_model hours speeds limits_percent memory_mib card_mib power_w "
    "freed_hours saved_kwh saved_cost slowest tails",
    "jobs": "basis job group gpu_model pods gpu_hours paused_hours kwh activity_percent spread "
    "memory_mib fills is_server several_gpus shared_hours tail",
    "first_pairs": "jobs speeds limits_percent power_w saved_w command",
}


def test_audit_of_a_prometheus(advisor: Advisor, tmp_path: Path) -> None:
    rows = [
        ({**labels, "namespace": "team<b>\x1b[2J"}, samples)
        for labels, samples in cluster(time.time(), 7)
    ]
    with metrics_server(rows) as server:
        options = ("--days", "0.25", "--keep", "kept.jsonl")
        done = advisor("audit", "--prometheus", server.url, *options, "--json")
        assert done.code == 0, done.err
    answer = answer_of(done.out)
    check(answer)
    for name, keys in KEYS.items():
        part: Any = answer[name] if name else answer
        for one in part if name in ("held_by", "sets", "jobs", "first_pairs") else [part]:
            assert set(one) == set(keys.split())
    page = (tmp_path / "audit.html").read_text()
    assert answer_of((tmp_path / "audit.json").read_text()) == answer
    assert "\x1b" not in page
    assert re.search("web [0-9]+\N{NO-BREAK SPACE}%", page)
    assert "<b>" not in page.replace("<body>", "")
    assert not re.search(r"(src|href)=|url\(|<script", page)
    assert len(page) < 100_000
    assert {"measured", "estimated"} <= {*re.findall(">([^<]+)<", page)}
    assert not [*(tmp_path / "home/audits").iterdir()]
    again = advisor("audit", "--series", "kept.jsonl", "--json")
    assert again.code == 0, again.err
    check(answer_of(again.out))
    asked_so = "pods of web: advisor.dev/job: web, advisor.dev/with: web"
    assert {one["command"] for one in answer["first_pairs"]} == {asked_so}
    # What was seen of both is kept once, however often it is audited, and advice takes it.
    assert answer["kept"] == answer_of(again.out)["kept"] == 2
    told = advisor("audit", "--series", "kept.jsonl", "--as", "kai")
    *pods, rest = [*yaml.safe_load_all(told.out.partition("---")[2].partition("for KAI")[0])]
    assert [pod["spec"]["schedulerName"] for pod in (*pods, rest)] == ["kai-scheduler"] * 5
    assert advisor("data", "export", "points.jsonl").code == 0
    stored = [*map(json.loads, (tmp_path / "points.jsonl").read_text().splitlines())]
    found = {point["job"]: point for point in stored}
    assert sorted(point["job"] for point in stored) == ["train", "web"]
    assert found["web"]["power_w"] == pytest.approx(180)
    assert (found["web"]["rate_unit"], found["web"]["flags"]) == ("windows", ["seen"])
    asked = advisor("recommend", "web", "train", "--gpu-model", MODEL, "--json")
    assert asked.code == 0, asked.err


def test_a_person_is_told_in_lines(advisor: Advisor) -> None:
    with metrics_server(cluster(time.time(), 3)) as server:
        done = advisor("audit", "--prometheus", server.url, "--days", "0.1")
    assert done.code == 0, done.err
    assert re.match(r"[23] of 5 GPUs would have been enough \(estimated, ", done.out)
    # The table is of a month, as the changes are, and says of what it is one.
    assert re.search(r"\n  Read    2.4 hours to .* UTC; what follows is for a month of\n", done.out)
    row = re.search(r"\n  Hours +([\d,]+)( +[\d,]+){2} to [\d,]+ +-\d+ %  GPU hours\n", done.out)
    assert int(some(row)[1].replace(",", "")) == pytest.approx(5 * 730, rel=0.05)
    assert "ADVISOR_GPU_HOUR" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    no_price = ("--prometheus", "http://127.0.0.1:9", "--objective", "cost")
    no_second = ("--prometheus", "http://127.0.0.1:9", "--step", "1.5")
    no_placer = ("--prometheus", "http://127.0.0.1:9", "--as", "yarn")
    for options in ((), ("--nvml", "--series", "x"), no_price, no_second, no_placer):
        assert advisor("audit", *options).code == 2


@pytest.mark.slow
def test_the_page_can_be_read_in_each_look(
    browser: Browser, advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut and no text is pale; what is worth most is in money."""
    monkeypatch.setenv("ADVISOR_GPU_HOUR", "2.5")
    with (tmp_path / "site.jsonl").open("w") as file:
        for labels, samples in cluster(1_796_000_000, 48, 300, SITE):
            values = [[t, f"{v:.4g}"] for t, v in samples]
            file.write(json.dumps({"metric": labels, "values": values}) + "\n")
    done = advisor("audit", "--series", "site.jsonl", "--step", "300", "--json")
    assert done.code == 0, done.err
    changes = answer_of(done.out)["changes"]
    freed = {one["group"]: one["freed_hours"]["value"] for one in changes}
    assert freed == pytest.approx({"search": 96, "vision": 96, "speech": 48}, rel=0.02)
    assert [one["saved_cost"]["value"] for one in changes] == sorted(
        (one["saved_cost"]["value"] for one in changes), reverse=True
    )
    assert changes[-1]["tails"] == [None, None]
    assert max(one["high"] for one in changes[0]["tails"] if one) > 1
    for look, width in {"light": 1280, "dark": 1280, "phone": 390}.items():
        scheme = "dark" if look == "dark" else "light"
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        visit = Visit(page, f"file://{tmp_path}")
        page.goto(f"{visit.origin}/audit.html")
        assert (visit.too_wide(), visit.pale()) == (0, [])
        picture(page, Path(__file__).parents[2] / f"build/screenshots/audit-{look}.png")
        page.close()


def test_each_audit_reads_what_is_there_now(advisor: Advisor, tmp_path: Path) -> None:
    """Nothing is left of one that saw nobody, nor of a file that has changed; names are quoted."""

    def write(*, named: bool) -> None:
        held = ("pod", "namespace", "container", "FB_USED", "ACTIVE")
        with (tmp_path / "s.jsonl").open("w") as file:
            for n, (labels, samples) in enumerate(cluster(1_764_000_000, 3)):
                if named and labels.get("pod", "").startswith("train"):
                    continue
                if named:
                    kept = {**labels, "pod": f"a;b\nreboot-{n // 8}"}
                elif any(word in labels["__name__"] for word in held):
                    continue
                else:
                    kept = {k: v for k, v in labels.items() if k not in held}
                values = [[t, str(v)] for t, v in samples]
                file.write(json.dumps({"metric": kept, "values": values}) + "\n")

    write(named=False)
    assert "no job was seen" in advisor("audit", "--series", "s.jsonl").err
    write(named=True)
    found = advisor("audit", "--series", "s.jsonl", "--json")
    assert found.code == 0, found.err
    pairs = answer_of(found.out)["first_pairs"]
    assert {one["command"] for one in pairs} == {"advisor watch"}, "no name that a job could have"
    assert all(one["saved_w"]["low"] > 0 for one in pairs)
    told = advisor("audit", "--series", "s.jsonl", "--as", "mps").out
    assert "COMMAND  # a;b reboot" in told
    assert "\nreboot" not in told


def test_two_audits_do_not_share_a_folder(tmp_path: Path) -> None:
    with _alone(tmp_path), pytest.raises(InputError, match="runs already"), _alone(tmp_path):
        pass


@pytest.mark.slow
def test_exporters_are_watched_into_a_file(advisor: Advisor, tmp_path: Path) -> None:
    """Rows of a dcgm-exporter become series that an audit reads, by their own time."""
    now_s, slept = [time.time() - 3600], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now_s[0] += 10

    labels = {**exporter.LABELS, "namespace": "team", "pod": "web-0", "container": "main"}
    with exporter.exporter(exporter.text(exporter.CLASSIC, labels)) as state:
        record(
            lambda: read_exporters([state.url]),
            tmp_path / "seen.jsonl",
            1800,
            lambda _: None,
            clock=lambda: now_s[0],
            sleep=sleep,
        )
    assert len(slept) == 180
    done = advisor("audit", "--series", "seen.jsonl", "--json")
    assert done.code == 0, done.err
    [job] = answer_of(done.out)["jobs"]
    assert (job["job"], job["group"], job["gpu_model"]) == ("web", "team", "NVIDIA H200")
    assert job["activity_percent"] == pytest.approx(50)
    assert job["gpu_hours"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.slow
def test_gpus_of_this_host_are_watched(nvml: FakeNvml, tmp_path: Path) -> None:
    """A job without a name is where memory is in use by more than the driver itself.

    Where a card counts no SM activity, how busy it is says that the job works.
    """
    nvml.write(gpu_count=3)
    nvml.write(gpu=2, power_mw=250_000, memory_used_mib=9000, gpm_support=0)
    nvml.write(gpu=0, power_mw=250_000, memory_used_mib=9600, memory_reserved_mib=600)
    nvml.write(gpu=1, power_mw=70_000, memory_used_mib=600, memory_reserved_mib=600)
    options = ("--nvml", "--minutes", "0.1", "--step", "1", "--json")
    library = nvml.environment
    done = in_its_own(
        tmp_path,
        *("audit", *options),
        ADVISOR_HOME=str(tmp_path / "home"),
        FAKE_NVML_DIR=library["FAKE_NVML_DIR"],
        LD_LIBRARY_PATH=library["LD_LIBRARY_PATH"],
    )
    assert done.returncode == 0, done.stderr
    answer = answer_of(done.stdout)
    job, busy = sorted(answer["jobs"], key=lambda one: one["job"])
    assert (job["job"][-6:], busy["job"][-6:]) == ("000 #1", "002 #1")
    assert job["memory_mib"] == busy["memory_mib"] == 9000
    assert 10 <= job["activity_percent"] < busy["activity_percent"] == 100
    assert (answer["now"]["gpus"], answer["now"]["cards"]) == (3, 2)
    assert answer["now"]["kwh"] == pytest.approx(0.25 * answer["now"]["gpu_hours"], rel=0.01)


def test_what_was_seen_until_ctrl_c_is_kept(tmp_path: Path) -> None:
    def stop(_seconds: float) -> None:
        raise KeyboardInterrupt

    row = ({"UUID": "GPU-0", "__name__": "DCGM_FI_DEV_POWER_USAGE"}, 250.0)
    file = tmp_path / "seen.jsonl"
    with pytest.raises(KeyboardInterrupt):
        record(lambda: iter([row]), file, 60, lambda _: None, sleep=stop)
    assert '"250"' in file.read_text()


@pytest.mark.prometheus
def test_real_prometheus_with_backfilled_blocks(advisor: Advisor, tmp_path: Path) -> None:
    """The queries are those of a real server: six hours that promtool wrote, with NaN and a gap."""
    if not (shutil.which("prometheus") and shutil.which("promtool")):
        pytest.skip("needs prometheus and promtool (Debian package prometheus)")
    lines = [
        f"{_selector(labels)} {'NaN' if n % 97 == 5 else value} {t:.3f}"
        for labels, samples in cluster(time.time() // HOUR_S * HOUR_S - 3 * HOUR_S, 6)
        for n, (t, value) in enumerate(samples)
        if not 100 <= n < 115
    ]
    (tmp_path / "series.txt").write_text("\n".join([*lines, "# EOF", ""]))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "series.txt", "data"]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    with real_prometheus(tmp_path) as url:
        done = advisor("audit", "--prometheus", url, "--days", "0.5", "--json")
    assert done.code == 0, done.err
    answer = answer_of(done.out)
    check(answer)
    assert answer["now"]["gpu_hours"] == pytest.approx(5 * 5.75, abs=0.3)


def _selector(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{k}="{v}"' for k, v in labels.items() if k != "__name__")
    return f"{labels['__name__']}{{{inside}}}"


@contextmanager
def real_prometheus(folder: Path) -> Generator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (folder / "prometheus.yml").write_text("global: {}\n")
    options = ["--config.file=prometheus.yml", f"--web.listen-address={address}"]
    options += ["--storage.tsdb.path=data", "--storage.tsdb.retention.time=60d"]
    log = folder / "prometheus.log"
    with log.open("wb") as file:
        process = subprocess.Popen(["prometheus", *options], cwd=folder, stdout=file, stderr=file)
        with ending(process):
            eventually(lambda: _is_ready(f"http://{address}/-/ready"), log.read_text)
            yield f"http://{address}"


def _is_ready(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False
