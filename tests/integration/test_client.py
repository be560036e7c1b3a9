"""The Python client, against a real service and against one that misbehaves."""

import inspect
import json
import math
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from certificates import make_certificate
from command_line import Advisor
from hypothesis import given, strategies as st
from reading import answer_of
from scripted_http import Reply, Scripted, dripping, scripted_http
from serving import Served, serving
from store_points import observation
from waiting import PATIENCE_S

import advisor
from advisor import client as client_module
from advisor.client import (
    AnswerError,
    ApiError,
    Client,
    GainsRequest,
    JobStatus,
    LaunchRequest,
    LaunchStatus,
    PlacementRequest,
    QueuedJobs,
    Recommendation,
    RecommendationRequest,
    TooSlowError,
    UnreachableError,
)
from advisor.core.records import SoloPoint
from advisor.errors import AdvisorError, InputError, install
from advisor.formats.wire import read, to_plain, write
from advisor.runtime.processes import wait_until
from advisor.wire.power import InputQuery
from advisor_advice.ask import recommend
from advisor_cli import recommend as recommend_command, recommend as replicas_command
from advisor_cli.measure.profile import profile, profile_command
from advisor_data.bundled import bundled_solo_points
from advisor_node.slurm.site import Named


def speak(url: str, name: str, *args: Any, token: str | None = None, **named: Any) -> Any:
    with Client(url, token, timeout_s=PATIENCE_S) as client:
        return getattr(client, name)(*args, **named)


@pytest.fixture(scope="module")
def writer(service: Served) -> str:
    return service.token("writer", "write")


@pytest.fixture(scope="module")
def answer(service: Served) -> Recommendation:
    return speak(service.url, "recommend", ASKED)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with scripted_http() as server:
        yield server


ASKED = RecommendationRequest.of("bert-train", "vit-infer")


def own_points(job: str = "mine") -> list[SoloPoint]:
    return [replace(p, job=job) for p in bundled_solo_points() if p.job == "bert-train"]


# Against a real service.


@pytest.mark.slow
def test_many_points_go_in_several_requests(service: Served, writer: str) -> None:
    points = [
        replace(p, job="many", started_at=f"2026-01-01T00:{n // 60:02}:{n % 60:02}+00:00")
        for n, p in zip(range(501), own_points() * 501, strict=False)
    ]
    assert speak(service.url, "import_points", points, token=writer).new == 501


def test_an_error_of_the_service_is_whole(service: Served) -> None:
    """Code, message, status and request id arrive; the request id is in the service's log."""
    with pytest.raises(ApiError) as refusal:
        speak(service.url, "recommend", RecommendationRequest.of("no-such-job", "vit-infer"))
    error = refusal.value
    assert isinstance(error, AdvisorError)
    assert speak(service.url, "healthy")
    assert (error.code, error.status) == ("bad-input", 422)
    assert "no-such-job" in error.message
    assert error.request_id in str(error)
    assert wait_until(lambda: error.request_id in service.log.read_text(), 10)


@pytest.mark.slow
def test_every_route_has_a_method(scripted: Scripted) -> None:
    """What OpenAPI lists, the client can ask for; a new route without a method is noticed here."""
    spec = json.loads((Path(__file__).parents[2] / "api/openapi.json").read_text())
    routes = {
        (method.upper(), path)
        for path, methods in spec["paths"].items()
        for method in methods
        if path.startswith(("/v1/", "/healthz", "/readyz"))
    }
    scripted.will(refusal(422, "bad-input"))
    for name, *args in EVERY_CALL:
        with pytest.raises(ApiError):
            speak(scripted.url, name, *args)
    asked = [(seen.method, seen.path.partition("?")[0]) for seen in scripted.seen]
    assert len(routes) >= 18
    for method, path in routes:
        wanted = re.sub(r"\{\w+\}", "[^/]+", path)
        assert any(verb == method and re.fullmatch(wanted, place) for verb, place in asked), path


EVERY_CALL: list[tuple[Any, ...]] = [
    ("recommend", ASKED),
    ("recommend_batch", [ASKED]),
    ("gains", GainsRequest(gpu_model="NVIDIA H200", jobs=("a",))),
    ("place", PlacementRequest(jobs=(QueuedJobs(job="a"),), gpus=1)),
    ("input_power", [InputQuery(operands="zeros", shape=(8, 8, 8), dtype="bf16")]),
    ("jobs",),
    ("profile", "a"),
    ("put_profile", "a", own_points()),
    ("delete_profile", "a"),
    ("import_points", own_points()),
    ("pair_points", "a", "b"),
    ("pair_points", "a", "b", "b"),
    ("observations",),
    ("job_components", "a"),
    ("sensors",),
    ("kernels",),
    ("observe", [observation()]),
    ("launch", LaunchRequest.of("a", "b")),
    ("plan_launch", LaunchRequest.of("a", "b")),
    ("launches",),
    ("launch_status", "x"),
    ("launch_history", "x"),
    ("overview",),
    ("stop_launch", "x"),
    ("stop_launch", "x", "a"),
    ("resplit_launch", "x"),
    ("join_launch", "x", LaunchRequest.of("a")),
    ("launch_join", "x", "0123456789abcdef"),
    ("models",),
    ("model", "v"),
    ("evaluation", "v"),
    ("promote", "v"),
    ("rollback",),
    ("audit",),
    ("healthy",),
    ("ready",),
]


# Against a service that misbehaves.

STATUS = LaunchStatus(launch_id="20260131-120000-abcdef", state="running", updated_at="now")
NO_MODELS = Reply(body={"models": [], "history": []})


def a_launch(**changes: Any) -> Reply:
    return Reply(body={**to_plain(replace(STATUS, **changes)), "host": "gpu7"})


def refusal(status: int, code: str = "overloaded", **headers: str) -> Reply:
    body = {"error": {"code": code, "message": "no.", "request_id": "r-1"}}
    return Reply(
        status=status, body=body, headers={n.replace("_", "-"): v for n, v in headers.items()}
    )


@pytest.fixture
def pauses_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses of the client, each of which is over at once."""
    found: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 100 + sum(found), sleep=found.append)
    monkeypatch.setattr(client_module, "time", clock)
    return found


def test_a_service_that_is_busy_or_restarts_is_asked_again(
    scripted: Scripted, pauses_s: list[float]
) -> None:
    lost = Reply(status=None)
    scripted.will(lost, refusal(429, Retry_After="1"), refusal(503, Retry_After="0"), NO_MODELS)
    assert speak(scripted.url, "models").models == ()
    assert pauses_s == [0.2, 1, 0]
    scripted.will(refusal(503, Retry_After="7"))
    with pytest.raises(ApiError) as refused:
        speak(scripted.url, "models")
    assert (refused.value.status, refused.value.retry_after_s) == (503, 7)
    assert pauses_s[3:] == [7, 7, 7]
    with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:9.*advisor serve"):
        speak("http://127.0.0.1:9", "models")
    assert pauses_s[6:] == [0.2, 0.4, 0.8]


BUSY = refusal(503, Retry_After="0")


@pytest.mark.parametrize(
    ("name", "args", "reply"),
    [
        ("models", [], refusal(503)),
        ("models", [], refusal(429, Retry_After="3600")),
        ("models", [], refusal(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")),
        ("models", [], refusal(500, "internal", Retry_After="0")),
        ("models", [], refusal(422, "bad-input")),
        *(
            (name, args, reply)
            for name, args in (("promote", ["v"]), ("rollback", []), ("delete_profile", ["a"]))
            for reply in (BUSY, Reply(status=None))
        ),
    ],
)
def test_what_would_not_help_or_do_more_is_asked_for_once(
    scripted: Scripted, name: str, args: list[str], reply: Reply
) -> None:
    """Asked again is a busy service that says when it is not, but never for a change."""
    scripted.will(reply)
    with pytest.raises(UnreachableError if reply.status is None else ApiError):
        speak(scripted.url, name, *args)
    assert len(scripted.seen) == 1


def test_a_repeated_launch_starts_once(scripted: Scripted) -> None:
    """Each repeat carries the key of the first request; the next launch has a key of its own."""
    asked = LaunchRequest.of("a", "b", split="30/70", allow_unsafe=True)
    scripted.will(Reply(status=None), refusal(503, Retry_After="0"), a_launch())
    assert speak(scripted.url, "launch", asked).state == "running"
    assert speak(scripted.url, "launch", asked).state == "running"
    assert speak(scripted.url, "launch", asked, idempotency_key="mine").state == "running"
    keys = [seen.headers["Idempotency-Key"] for seen in scripted.seen]
    assert keys[0] == keys[1] == keys[2] != keys[3] != keys[4] == "mine"
    assert len(keys[0]) >= 32
    assert scripted.seen[0].body == to_plain(asked)


def a_join(**changes: Any) -> Reply:
    told = JobStatus(job="a", rate_unit="steps", share_percent=30, join_id="0123456789abcdef")
    return Reply(body=to_plain(replace(told, **changes)))


def test_a_join_is_waited_for(scripted: Scripted, pauses_s: list[float]) -> None:
    """It is asked once, by a key; then looked at until the supervisor has answered."""
    asked = LaunchRequest.of("a", share_percent=30.0)
    scripted.will(a_join(), a_join(), a_join(outcome="refused", code="no-split", error="no room"))
    said: JobStatus = speak(scripted.url, "join_launch", STATUS, asked)
    assert (said.outcome, said.code, said.error) == ("refused", "no-split", "no room")
    first, *looks = scripted.seen
    assert (first.method, first.path) == ("POST", f"/v1/launches/{STATUS.launch_id}/joins")
    assert first.headers["Idempotency-Key"]
    assert {look.path for look in looks} == {f"{first.path}/0123456789abcdef"}
    assert pauses_s == [1, 1]
    scripted.will(a_join())
    with pytest.raises(TooSlowError, match=r"a has not joined after 0 s.*launch_join"):
        speak(scripted.url, "join_launch", STATUS.launch_id, asked, timeout_s=0.0)


def test_a_launch_is_waited_for(scripted: Scripted, pauses_s: list[float]) -> None:
    scripted.will(a_launch(), a_launch(state="stopping"), a_launch(state="failed", code="job"))
    found: LaunchStatus = speak(scripted.url, "wait", STATUS)
    assert (found.state, found.code, pauses_s) == ("failed", "job", [1, 1])
    scripted.will(a_launch())
    with pytest.raises(TooSlowError, match=r"abcdef is running after 2.5 s.*stop_launch"):
        speak(scripted.url, "wait", STATUS.launch_id, timeout_s=2.5)
    assert pauses_s[2:] == [1, 1, 0.5]


def test_a_slow_answer_ends_in_time(scripted: Scripted) -> None:
    """The error says that it was slow, and a second time limit is not spent."""
    scripted.will(Reply(body={}, after_s=30))
    with Client(scripted.url, timeout_s=0.3) as client, pytest.raises(TooSlowError, match="time"):
        client.models()
    assert len(scripted.seen) == 1


def test_an_answer_without_end_is_given_up(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it comes a letter at a time, or faster than memory lasts."""
    with (
        dripping(b"HTTP/1.1 200 OK\r\n\r\n") as url,
        Client(url, timeout_s=0.3) as client,
        pytest.raises(TooSlowError, match="time"),
    ):
        client.models()
    monkeypatch.setattr(client_module, "_LARGEST_BYTES", 1000)
    scripted.will(Reply(body=b" " * 2000))
    with pytest.raises(AnswerError, match="more than 1000 bytes"):
        speak(scripted.url, "models")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=502, body=b"<html>Bad gateway</html>"),
        Reply(body=b"<html>Welcome</html>"),
        Reply(status=404, body={"detail": "Not Found"}),
        Reply(body=["models"]),
        Reply(status=302, headers={"Location": "http://127.0.0.1:9/"}),
        Reply(status=500, body=b"[" * 200_000),
        Reply(body=b"zip", headers={"Content-Encoding": "gzip"}),
        Reply(body=b'{"a":[' + b'{"a":{}},' * 2_700_000),
    ],
)
def test_something_else_listens_there(scripted: Scripted, reply: Reply) -> None:
    """A proxy's page or another service is told as such, and a redirect is not followed."""
    scripted.will(reply)
    with pytest.raises(AnswerError, match="something else listens there"):
        speak(scripted.url, "models", token="adv_secret")
    assert len(scripted.seen) == 1


def test_a_token_stays_a_secret(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the service and nowhere else: no proxy of the environment, no error, no repr."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    scripted.will(refusal(401, "unauthorized"))
    with pytest.raises(ApiError) as refused:
        speak(scripted.url, "models", token="adv_secret")
    assert scripted.seen[0].headers["Authorization"] == "Bearer adv_secret"
    assert "adv_secret" not in repr(refused.value) + str(refused.value)
    with Client(scripted.url, "adv_secret") as client:
        assert "adv_secret" not in repr(client)


@pytest.mark.parametrize(
    ("url", "token", "said", "secret"),
    [
        ("http://127.0.0.1:9", "", "the token", "adv_secret"),
        *(
            ("http://127.0.0.1:9", token, "the token", token.strip())
            for token in ("adv_secret\n", "adv secret", "adv_sécret")
        ),
        *(
            (url, None, r"http://127\.0\.0\.1:8765", "pw")
            for url in (
                "",
                "127.0.0.1:8765",
                "ftp://h",
                "http://",
                "http://h:99999",
                "http://[",
                "http://u:pw@h",
            )
        ),
    ],
)
def test_an_address_or_a_token_that_is_none(
    url: str, token: str | None, said: str, secret: str
) -> None:
    """The message shows a good address, and neither a password nor the token."""
    with pytest.raises(InputError, match=said) as refused:
        Client(url, token)
    assert secret not in str(refused.value)


def test_a_record_of_another_kind_is_refused_before_it_is_sent(scripted: Scripted) -> None:
    wrong: Any = b"adv_secret"
    refused = pytest.raises(InputError, match="is neither a point nor an observation")
    with Client(scripted.url) as client, refused:
        client.import_points([wrong])
    assert not scripted.seen


def test_names_stay_one_part_of_a_path(scripted: Scripted) -> None:
    scripted.will(refusal(422, "bad-input"))
    with pytest.raises(ApiError):
        speak(f"{scripted.url}/advisor/", "delete_profile", "../models/x?y=1#z")
    assert scripted.seen[0].path == "/advisor/v1/profiles/..%2Fmodels%2Fx%3Fy%3D1%23z"


@pytest.mark.slow
def test_tls_needs_trust(tmp_path: Path) -> None:
    """A certificate that nobody signed is refused, with what to do; given as a file it is taken."""
    certificate, key = make_certificate(tmp_path)
    with serving(tmp_path, [f"--tls-certificate={certificate}", f"--tls-key={key}"]) as served:
        with pytest.raises(UnreachableError, match=r"verify='ca\.pem'"):
            speak(served.url, "models")
        with Client(served.url, verify=certificate) as client:
            assert client.models().models
        with pytest.raises(InputError, match=r"nowhere\.pem"):
            Client(served.url, verify="nowhere.pem")


# What answers must hold.


@given(st.data())
def test_a_newer_service_may_say_more(answer: Recommendation, data: st.DataObject) -> None:
    raw = to_plain(answer)
    target = data.draw(st.sampled_from(_records(raw)))
    target["colour"] = data.draw(st.one_of(st.none(), st.integers(), st.text(), st.just({"a": 1})))
    assert read(Recommendation, write(raw), tolerant=True) == answer


LATER = {
    "card", "data", "drifts", "energy", "gpus",
    "latency_p99_ms", "lower_limits", "measured", "model", "near", "one_window", "picks",
    "replicas", "said",
}  # fmt: skip
"""Keys that only some answers have. No other may be left out."""


def test_what_is_missing_is_named(answer: Recommendation) -> None:
    raw = to_plain(answer)
    for target in _records(raw):
        for name in list(target):
            value = target.pop(name)
            if name in LATER:
                read(Recommendation, write(raw), tolerant=True)
            else:
                with pytest.raises(InputError, match=f"{name}: it is missing"):
                    read(Recommendation, write(raw), tolerant=True)
            target[name] = value


def _records(raw: Any) -> list[dict[str, Any]]:
    """The objects of a recommendation whose keys are fixed."""
    choices = [*filter(None, [raw["choice"]]), *raw["candidates"]]
    shares = [share for option in choices for share in option["jobs"]]
    numbers = [option["power_w"] for option in choices] + [share["rate"] for share in shares]
    return [raw, raw["model"], *raw["jobs"], *choices, *shares, *numbers]


# What it loads.


def test_without_httpx_the_message_has_the_command() -> None:
    code = "import sys; sys.modules['httpx'] = None; import advisor.client"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert install("client") in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_the_client_is_light() -> None:
    """A program that only asks loads nothing of what answers, and no httpx before it asks."""
    code = "import sys, advisor; print(*sys.modules); import advisor.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = (set(line.split()) for line in done.stdout.splitlines())
    assert "httpx" in after - before
    assert not {"numpy", "fastapi", "sqlalchemy", "pydantic", "advisor_data", "yaml"} & after


def test_numbers_of_numpy_are_sent_as_numbers() -> None:
    watts, count = cast("Any", np.float32(300)), cast("Any", np.int64(2))
    asked = to_plain(RecommendationRequest.of("a", most=count, max_power_w=watts))
    assert (asked["most"], asked["max_power_w"]) == (2, 300.0)
    assert json.dumps(asked)


# What `import advisor` offers: the answers of the command line, from the same functions.


OF_TWO: tuple[tuple[Callable[[], object], str], ...] = (
    (
        lambda: advisor.recommend("bert-serve-30", "triad", min_speed={"triad": 0.5}),
        "recommend bert-serve-30 triad --min-speed triad=0.5",
    ),
    (
        lambda: advisor.recommend("bert-train*2", "fft", memory="140GiB", isolate=True),
        "recommend bert-train*2 fft --memory 140GiB --isolate",
    ),
    (lambda: advisor.recommend("bert-train"), "recommend bert-train"),
    (
        lambda: advisor.replicas("bert-serve-30", max_p99="50ms", cores=16),
        "replicas bert-serve-30 --max-p99 50ms --cores 16",
    ),
)


@pytest.mark.usefixtures("advisor")
@pytest.mark.slow
@pytest.mark.parametrize(("ask", "words"), OF_TWO)
def test_python_is_told_what_the_command_line_is(
    ask: Callable[[], object], words: str, advisor: Advisor
) -> None:
    told = answer_of(advisor(*words.split(), "--json").out)
    assert json.loads(write(ask())) | {"said": None} == told | {"said": None}
    assert told.get("said") is None  # a program reads keys


@pytest.mark.usefixtures("advisor")
@pytest.mark.parametrize("names", ["bert-serve-30 triad", "bert-train*2 fft"])
def test_an_answer_prints_as_the_command_does(names: str, advisor: Advisor) -> None:
    """And so it ends a cell of a notebook: its parts alone fill pages."""
    answer = recommend(*names.split())
    shown = advisor("recommend", *names.split()).out.split()
    assert str(answer).split() == shown[: shown.index("More")]
    assert str(replace(answer, said=None)).startswith(type(answer).__name__)


@pytest.mark.usefixtures("advisor")
@pytest.mark.parametrize(
    ("ask", "options", "what"),
    [
        (recommend, {"min_speed": [0.5, 0.7]}, "does not say whose it is"),
        (recommend, {"min_gain": math.nan}, "a least gain of nan is not possible"),
        (recommend, {"min_gain": 3}, "a least gain of 3 is not possible"),
        (advisor.profile, {"repeats": 0}, "0 windows per share measure nothing"),
        (advisor.profile, {"window": math.inf}, "no window takes inf s"),
    ],
)
def test_a_value_out_of_range_is_refused(
    ask: Callable[..., object], options: dict[str, object], what: str
) -> None:
    with pytest.raises(InputError) as raised:
        ask("bert-serve-30", **options)
    assert what in str(raised.value)
    assert raised.value.fix


@pytest.mark.usefixtures("advisor")
def test_numbers_of_numpy_are_numbers() -> None:
    watts: Any = np.float32(800)
    told = recommend("bert-serve-30", "triad", max_power=watts, min_gain=0)
    assert told == recommend("bert-serve-30", "triad", max_power=800.0, min_gain=0.0)
    least, shares = cast("Any", np.int64(0)), cast("Any", np.array([10, 100]))
    assert recommend("triad", "fft", min_speed=least) == recommend("triad", "fft", min_speed=0)
    assert len(profile("triad", shares=shares, gpu="replay").points) == 2


@pytest.mark.usefixtures("advisor")
def test_a_replay_in_python_has_the_points_of_the_command(advisor: Advisor) -> None:
    told = json.loads(advisor("profile", "triad", "--gpu", "replay", "--json").out)
    found = profile("triad", shares=[10, 100], gpu="replay")
    points = [p for p in told["points"] if p["share_percent"] in (10, 100)]
    frame = found.to_frame()
    assert frame["share_percent"].tolist() == [10, 100]
    for column in ("rate", "power_w"):
        assert frame[column].tolist() == pytest.approx([point[column] for point in points])
    assert (found.lacking, found.problems) == (None, [])


SHOWN = {"on", "shard", "how", "why", "notes", "as_json", "placer"}
"""Options of commands that change nothing but what is printed, or ask other hosts."""


@pytest.mark.usefixtures("advisor")
@pytest.mark.parametrize(
    ("ask", "command"),
    [
        (advisor.recommend, recommend_command.recommend),
        (advisor.replicas, replicas_command.replicas),
        (advisor.profile, profile_command),
    ],
)
def test_options_have_the_same_names_and_defaults(ask: object, command: object) -> None:
    """One that is added to a command and forgotten in Python, or means another default there."""
    ours, its = (inspect.signature(each).parameters for each in (ask, command))  # pyright: ignore[reportArgumentType]
    assert ours.keys() == its.keys() - SHOWN
    options = ours.keys() - {"job", "jobs", "what"}
    assert {name: ours[name].default for name in options} == {
        name: its[name].default for name in options
    }


@pytest.mark.usefixtures("advisor")
def test_an_answer_is_a_frame_of_all_ways() -> None:
    """A row for each way, numbers in the units of their names, and one that was chosen."""
    answer = advisor.recommend("bert-serve-10", "triad", every=True)
    frame = answer.to_frame()
    chosen = frame[frame["is_choice"]].iloc[0]
    assert {"50/50", "uncapped", "exclusive"} <= set(frame["split"])
    assert len(frame) == frame["split"].nunique() == answer.searched
    assert (chosen["split"], chosen["job_2"]) == (to_plain(answer)["choice"]["split"], "triad")
    assert chosen["power_low_w"] <= chosen["power_w"] <= chosen["power_high_w"]
    assert chosen["speed_low_2"] <= chosen["speed_2"] <= 1
    copies = advisor.replicas("bert-serve-30").to_frame()["number"].tolist()
    assert copies == list(range(1, len(copies) + 1))
    ways = set(advisor.recommend("bert-train*3").to_frame()["sharing"])
    assert ways == {"limited", "uncapped", "time-sliced", "exclusive"}
    assert len(advisor.recommend("bert-train").to_frame()) == 10


@pytest.mark.usefixtures("advisor")
def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pandas for a frame nor NumPy for advice ends in a traceback without a cure."""
    answer = advisor.recommend("bert-train")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        answer.to_frame()
    code = "import sys, advisor; sys.modules['numpy'] = None; advisor.recommend('a', 'b')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert f"needs numpy, which is not installed: {install('advise')}".encode() in done.stderr
    with pytest.raises(AttributeError, match="recomend"):
        getattr(advisor, "recomend")  # noqa: B009


@pytest.mark.usefixtures("advisor")
@pytest.mark.slow
def test_help_is_there_where_an_extra_is_missing() -> None:
    """What needs it says so in its line; the rest is told as ever."""
    code = (
        "import sys, pydoc; sys.modules.update(dict.fromkeys(['sklearn', 'pandas']))\n"
        "import advisor; print(pydoc.render_doc(advisor, renderer=pydoc.plaintext))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needs = f"PriorRegressor needs sklearn, which is not installed: {install('train')}"
    assert all(part in done.stdout for part in (needs, "Most power of the GPU, W."))


# The examples run, and say what they are there for; a figure of theirs is no promise.


ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.mark.usefixtures("advisor")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("two_servers", ["share 50/26", "start them: advisor launch bert-serve-30"]),
        ("server_and_training", ["energy_saved", "share"]),
        ("seven_trainings", ["share 13/13/13/13/13/13/13", "copies"]),
        ("frontier", ["points of", "share 100/50"]),
    ],
)
def test_an_example_runs(
    name: str, said: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of columns, options and answers that have changed break them first."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    told = capsys.readouterr().out
    for part in said:
        assert part in told


@pytest.mark.usefixtures("advisor")
def test_the_page_begins_with_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec((ROOT / "docs/python.md").read_text().partition("```python\n")[2].partition("```")[0], {})
    assert "share 100/47" in capsys.readouterr().out


@pytest.mark.usefixtures("advisor")
def test_the_batch_script_names_a_recorded_job() -> None:
    """A comment that the matcher does not take would leave the job alone on its GPU, silently."""
    script = EXAMPLES / "slurm.sh"
    (comment,) = (
        line.partition("--comment=")[2]
        for line in script.read_text().splitlines()
        if line.startswith("#SBATCH --comment=")
    )
    named = Named.read(comment)
    assert named is not None
    assert named.job in {point.job for point in bundled_solo_points()}
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
