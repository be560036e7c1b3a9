"""What is asked of a Prometheus, what is kept on disk, and what is not asked again."""

import io
import json
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
import requests
from exporter import RENAMED
from metrics_server import MetricsServer, Samples, metrics_server
from scripted_http import Reply, dripping, scripted_http

from advisor.errors import AdvisorError, InputError, SourceError
from advisor_audit.audit import Pages
from advisor_audit.sources import (
    METRICS,
    TOKEN,
    Prometheus,
    Series,
    SeriesFile,
    session_for,
    write_lines,
)
from advisor_models.single_window import BUSY

HOUR_S, STEP_S = 3600.0, 60.0
BEGIN_S = 1_700_000_400.0


def samples(gpus: int = 3, hours: float = 13) -> Samples:
    """GPUs with a pod each, at half of their activity, read each half minute."""
    times_s = [BEGIN_S + 30 * n for n in range(1, int(hours * 120) + 1)]
    values = {"DCGM_FI_DEV_POWER_USAGE": 300, "DCGM_FI_DEV_FB_USED": 9000}
    values |= {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5, "kube_pod_info": 1}
    return [
        (
            {"__name__": name, "UUID": f"GPU-{n}", "namespace": "team", "pod": f"job-{n}"},
            [(t, value) for t in times_s],
        )
        for n in range(gpus)
        for name, value in values.items()
    ]


@pytest.fixture(scope="module")
def server() -> Generator[MetricsServer]:
    with metrics_server(samples()) as found:
        yield found


@pytest.fixture(autouse=True)
def _as_new(server: MetricsServer) -> None:
    server.refuse, server.most_samples, server.token = [], 10**9, ""
    server.asked.clear()


def open_source(
    server: MetricsServer,
    secrets: Mapping[str, str] | None = None,
    sleep: Callable[[float], None] = lambda _: None,
    longest_s: float = 60.0,
    url: str = "",
    session: requests.Session | None = None,
) -> Prometheus:
    return Prometheus(
        url or server.url,
        session or session_for(secrets or {}),
        begin_s=BEGIN_S,
        end_s=BEGIN_S + 13 * HOUR_S,
        step_s=STEP_S,
        sleep=sleep,
        longest_s=longest_s,
    )


def read(source: Prometheus | SeriesFile, folder: Path) -> Pages:
    folder.mkdir(exist_ok=True)
    return Pages.read(source, "namespace", folder, lambda _done, _total: None)


def merged(pages: Pages) -> set[tuple[str, str, float, float]]:
    """GPU, owner, activity and hours of all segments."""
    hours: dict[tuple[str, str, float], float] = {}
    for page in range(len(pages.pages)):
        for one in pages.segments(page):
            assert one.owner is not None
            key = (one.gpu, one.owner.name, one.means["gpu_busy_percent"])
            hours[key] = hours.get(key, 0) + (one.end_s - one.begin_s) / HOUR_S
    return {(*key, round(value, 6)) for key, value in hours.items()}


WANTED = {(f"GPU-{n}", f"job-{n}", 50.0, 13.0) for n in range(3)}


def test_every_page_is_asked_for_once(server: MetricsServer, tmp_path: Path) -> None:
    """A page of six hours is one request for each metric of GPUs, and of no other metric."""
    assert merged(read(open_source(server), tmp_path)) == WANTED
    assert len([query for query in server.asked if "over_time" in query]) == 3 * 3
    # What is there is asked for once: the names, and of each metric its GPUs and its exporters.
    assert len(server.asked) == 3 * 3 + 1 + 3 * 2
    assert not any("kube_pod_info" in query for query in server.asked)


def test_another_metric_is_asked_of_gpus_without_the_best(tmp_path: Path) -> None:
    """GPU-1 has no counters, GPU-2 no power: how busy it is, and its energy, stand in."""
    others = {
        ("GPU-1", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"): ("DCGM_FI_DEV_GPU_UTIL", 100.0),
        ("GPU-2", "DCGM_FI_DEV_POWER_USAGE"): ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0.0),
    }
    mixed: list[tuple[dict[str, str], list[tuple[float, float]]]] = []
    for labels, read_there in samples():
        name, factor = others.get((labels["UUID"], labels["__name__"]), ("", 1.0))
        total = [(t, 300e3 * (t - BEGIN_S) if not factor else v * factor) for t, v in read_there]
        mixed.append(({**labels, "__name__": name or labels["__name__"]}, total))
    with metrics_server(mixed) as site:
        pages = read(open_source(site), tmp_path)
        assert {activity for _, _, activity, _ in merged(pages)} == {50.0}
        means = {one.gpu: one.means["power_w"] for one in pages.segments(0)}
        assert means == pytest.approx({f"GPU-{n}": 300 for n in range(3)}, rel=0.01)
        asked = [query for query in site.asked if "GPU_UTIL" in query]
        assert asked
        assert all('"(GPU\\\\-1)(' in query for query in asked), "of GPU-1 alone"


def test_pods_of_exporters_and_of_workers_are_told_by_finer_labels() -> None:
    """A batch job stands beside its worker's pod, and a pod beside that of the exporter."""
    finer: list[dict[str, str]] = [
        {"hpc_job": "1", "pod": "worker-0"},
        {"exported_pod": "web-0", "pod": "dcgm-x2x7k"},
        {},
    ]
    beside = [
        ({**labels, **more}, read_there)
        for more in finer
        for labels, read_there in samples(hours=0.1)
    ]
    with metrics_server(beside) as site:
        assert open_source(site).carriers == {"worker", "dcgm"}


def test_interrupted_reading_goes_on(server: MetricsServer, tmp_path: Path) -> None:
    source = open_source(server)

    def interrupt(done: int, _total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pages.read(source, "namespace", tmp_path, interrupt)
    server.asked.clear()
    assert merged(read(source, tmp_path)) == WANTED
    assert len(server.asked) == 3


def test_busy_server_is_asked_later(server: MetricsServer, tmp_path: Path) -> None:
    """503 and 429 are waited out, longer each time; a server that stays so is named.

    One that has never answered is not waited for: its address is wrong.
    """
    slept = list[float]()
    source = open_source(server, sleep=slept.append)
    server.refuse = [503, 429, 503]
    assert merged(read(source, tmp_path)) == WANTED
    assert len(slept) == 3
    assert slept[0] < slept[2]
    server.refuse = [503] * 8
    with pytest.raises(SourceError, match="8 tries"):
        open_source(server)
    slept.clear()
    with pytest.raises(SourceError, match="name the address") as raised:
        open_source(server, sleep=slept.append, url="http://127.0.0.1:9")
    assert raised.value.why == "Connection refused"  # and not all that was asked for
    assert not slept


@pytest.mark.parametrize(
    "begun", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"]
)
def test_an_answer_without_end_is_given_up(server: MetricsServer, begun: bytes) -> None:
    """A server that says a little now and then, headers as well, holds nobody."""
    with (
        dripping(begun) as url,
        pytest.raises(SourceError, match=r"took longer than 0\.2 s"),
    ):
        open_source(server, url=url, longest_s=0.2)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(body=b"[" * 200_000), "without JSON"),
        (Reply(body={"status": "success", "data": None}), "no list of names"),
        (Reply(body={"status": "success", "data": [["a"], 1]}), "none of dcgm-exporter"),
        (
            Reply(status=400, body={"status": "error", "error": "no\nadvisor: all is well"}),
            "no advisor: all is well",
        ),
        (Reply(status=503, headers={"Retry-After": "\xb2"}, body=b"limit"), "without JSON"),
        (Reply(body=b'{"status":"success","data":[' + b'{"a":{}},' * 700_000), "2000000 values"),
    ],
)
def test_nonsense_is_told(server: MetricsServer, reply: Reply, said: str) -> None:
    with scripted_http() as other:
        other.will(reply)
        with pytest.raises(SourceError, match=said):
            open_source(server, url=other.url)


@pytest.mark.parametrize("result", [None, [1], [{"metric": {}, "values": [[1]]}], [{"metric": 1}]])
def test_series_that_are_none_are_told(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch, result: object
) -> None:
    source = open_source(server)

    def answered(*_: object, **__: object) -> object:
        return {"result": result}

    monkeypatch.setattr(source, "_get", answered)
    with pytest.raises(SourceError, match="its answer is not a series"):
        list(source.read(0, BEGIN_S, BEGIN_S + HOUR_S))


@pytest.mark.slow
def test_too_much_at_once_is_asked_in_parts(server: MetricsServer, tmp_path: Path) -> None:
    server.most_samples = 400
    assert merged(read(open_source(server), tmp_path)) == WANTED


def test_token_and_file_let_in(server: MetricsServer, tmp_path: Path) -> None:
    server.token = "secret-1"
    open_source(server, {TOKEN: "secret-1"})
    (tmp_path / "token").write_text("secret-1\n")
    config = tmp_path / "http.yml"
    config.write_text("authorization: {credentials_file: token}\n")
    names = f"{server.url}/api/v1/label/__name__/values"
    assert session_for({}, config).get(names).status_code == 200
    with pytest.raises(SourceError, match=TOKEN):
        open_source(server)
    config.write_text("tls_config: {insecure_skip_verify: true}\n")
    with pytest.raises(InputError, match="ca_file"):
        session_for({}, config)
    for text in ("authorization: x", "tls_config: {min_version: TLS13}"):
        config.write_text(text)
        with pytest.raises(InputError, match="leave only"):
            session_for({}, config)


def test_a_tenant_is_named_and_nothing_is_sent_where_an_answer_redirects(
    server: MetricsServer, tmp_path: Path
) -> None:
    """As Mimir, Cortex and Thanos want it, in the form that promtool documents."""
    (tmp_path / "third").write_text("c\n")
    config = tmp_path / "http.yml"
    config.write_text(
        "http_headers:\n  X-Scope-OrgID: {values: [a], secrets: [b], files: [third]}\n"
    )
    with scripted_http() as others, scripted_http() as ours:
        others.will(Reply())
        for status in (302, 307, 308):
            ours.will(Reply(status=status, headers={"Location": f"{others.url}/x"}))
            with pytest.raises(SourceError, match=f"redirects to '{others.url}/x'"):
                open_source(server, url=ours.url, session=session_for({}, config))
            assert [one.headers.get("X-Scope-OrgID") for one in ours.seen] == ["a, b, c"]
        assert others.seen == []
    for given in ("Authorization: {values: [x]}", "X-A: x", "X-A: {values: x}", "X-A: {file: [x]}"):
        config.write_text(f"http_headers: {{{given}}}\n")
        with pytest.raises(InputError, match="leave only"):
            session_for({}, config)


def test_kept_series_are_the_same_again(server: MetricsServer, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    first.mkdir()
    with (tmp_path / "kept.jsonl").open("wb") as file:
        pages = Pages.read(open_source(server), "namespace", first, lambda _d, _t: None, file)
    assert merged(read(SeriesFile(tmp_path / "kept.jsonl", step_s=STEP_S), again)) == merged(pages)


def test_clocks_that_were_wrong_make_no_years(tmp_path: Path) -> None:
    def opened(rows: Samples) -> SeriesFile:
        with (tmp_path / "series.jsonl").open("wb") as file:
            series = (Series(of, [t for t, _ in at], [v for _, v in at]) for of, at in rows)
            write_lines(file, series)
        return SeriesFile(tmp_path / "series.jsonl", step_s=STEP_S)

    right = opened(samples())
    first, *others = samples()
    late = [(t + 1e10, value) for t, value in first[1][:2]]
    found = opened([(first[0], [(0.0, 1.0), *first[1]]), *others, (first[0], late)])
    assert (found.counts.strays, right.counts.strays) == (3, 0)
    for one in (right, found):
        assert (one.begin_s, one.end_s, one.page_s) == (right.begin_s, right.end_s, right.page_s)


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "nonsense",
        '{"metric": {"UUID": "GPU-1"}, "values": [[]]}',
        '{"metric": [], "values": []}',
        '{"metric": {"UUID": "GPU-1"}, "values": [[NaN, "1"]]}',
    ],
)
def test_lines_that_are_no_series_are_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "series.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(AdvisorError, match="line 1 of") as raised:
        SeriesFile(path, step_s=STEP_S)
    assert raised.value.why != "'metric'"
    assert '"values": [[SECONDS, "VALUE"]]' in raised.value.fix


def test_labels_that_are_no_text_are_read_as_text(tmp_path: Path) -> None:
    path, name = tmp_path / "series.jsonl", "DCGM_FI_DEV_POWER_USAGE"
    labels = {"__name__": name, "UUID": "GPU-1", "pod": 5, "namespace": ["a"]}
    path.write_text(json.dumps({"metric": labels, "values": [[0, "1"], [60, "2"]]}) + "\n")
    (found,) = SeriesFile(path, step_s=STEP_S).read(0, -1, 61)
    assert (found.labels["pod"], found.labels["namespace"]) == ("5", "['a']")


def test_a_total_is_kept_to_the_last_digit() -> None:
    """Or a counter of years shows 333 W where 300 W were drawn."""
    file, before = io.BytesIO(), 9_460_800_000_000.0
    write_lines(file, [Series({}, [0.0, 60.0], [before, before + 18_000_000.0])])
    (_, first), (_, last) = json.loads(file.getvalue())["values"]
    assert float(last) - float(first) == 18_000_000


@pytest.mark.parametrize("url", ["localhost:9090", "http://[::1"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(SourceError, match="name the address"):
        Prometheus(url, session_for({}), begin_s=0, end_s=60, step_s=60)


def test_a_password_in_the_address_is_used_and_not_shown(server: MetricsServer) -> None:
    session = session_for({})
    url = server.url.replace("//", "//bob:hunter2@")
    source = Prometheus(url, session, begin_s=BEGIN_S, end_s=BEGIN_S + HOUR_S, step_s=STEP_S)
    assert (source.url, session.auth) == (server.url, ("bob", "hunter2"))


def test_the_ca_file_goes_before_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", __file__)
    config = tmp_path / "http.yml"
    config.write_text("tls_config: {ca_file: nowhere.pem}\n")
    with pytest.raises(SourceError, match=r"nowhere\.pem"):
        Prometheus(
            "https://127.0.0.1:9",
            session_for({}, config),
            begin_s=0,
            end_s=60,
            step_s=60,
            sleep=lambda _: None,
        )


def test_metrics_are_asked_for_by_both_generations_of_names() -> None:
    """Of DCGM 4.6 on, and in the same unit: the utilisation is percent under both."""
    for factors in METRICS.values():
        for old, new in RENAMED.items():
            assert factors.get(old) == factors.get(new)
    assert METRICS[BUSY]["DCGM_FI_DEV_GPU_UTIL_RATIO"] == 1.0
