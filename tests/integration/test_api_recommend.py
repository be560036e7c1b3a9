"""Recommendations and placements over HTTP, with the bundled profiles and the bundled model."""

import json
import math
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from command_line import Advisor, answered
from in_process import Api, error_of, running

from advisor.formats.wire import read
from advisor.wire.answers import BatchAnswer, Gains, Placement, Recommendation

URL = "/v1/recommendations"
PAIR = ["fft", "resnet50-train-b2"]


def jobs(*names: str, **more: Any) -> list[dict[str, Any]]:
    """Jobs as requests have them, each with the same limits."""
    return [{"job": name, **more} for name in names]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service of somebody who has stored nothing."""
    with running(tmp_path_factory.mktemp("home")) as api:
        yield api


PLACE = "/v1/placements"
SET = ("resnet50-train-b2", "resnet50-train-b2", "fft")
H200 = {"gpu_model": "NVIDIA H200"}
H100 = "NVIDIA H100 80GB HBM3"
MOBILENET = "mobilenet-train-b2"
"""Three of it were measured together on an H100, without limits and in turns."""
_FFT = {"job": "fft", "min_speed": 0.4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "words", "kind"),
    [
        (URL, {}, "", Recommendation),
        (
            URL,
            {"objective": "max-min", "fine": True, "every": True},
            "--objective max-min --fine --all",
            Recommendation,
        ),
        (
            URL,
            {"min_speed": 0.4, "max_power_w": 600, "memory_mib": 143771},
            "--min-speed 0.4 --max-power 600 --memory 143771",
            Recommendation,
        ),
        *(
            (
                URL,
                {**H200, "jobs": [{"job": "llm-serve-30", **own}, {"job": "triad"}], **more},
                f"recommend llm-serve-30 triad --gpu-model 'NVIDIA H200' --max-p99 {words}",
                Recommendation,
            )
            for own, more, words in (
                ({}, {"max_p99_ms": 240}, "240ms"),
                ({"max_p99_ms": 240}, {}, "llm-serve-30=0.24s"),
            )
        ),
        (
            URL,
            {**H200, "jobs": [{"job": PAIR[0], "min_speed": 0.7}, {"job": PAIR[1]}]},
            "--gpu-model 'NVIDIA H200' --min-speed fft=0.7",
            Recommendation,
        ),
        (
            URL,
            {
                "jobs": [{"job": SET[0], "copies": 2}, {"job": SET[2]}],
                "isolate": True,
                "words": True,
                **H200,
            },
            f"recommend {SET[0]}*2 {SET[2]} --gpu-model 'NVIDIA H200' --isolate",
            Recommendation,
        ),
        (
            URL,
            {"jobs": jobs(SET[0]), **H200},
            f"replicas {SET[0]} --gpu-model 'NVIDIA H200'",
            Recommendation,
        ),
        *(
            (
                URL,
                {
                    "jobs": [{"job": MOBILENET, "copies": copies}],
                    **{"gpu_model": H100, "max_power_w": 400.0, "host_cores": 5.0},
                },
                f"{words} --gpu-model '{H100}' --max-power 400 --cores 5",
                Recommendation,
            )
            for copies, words in (
                (3, f"recommend {MOBILENET}*3"),
                (1, f"replicas {MOBILENET}"),
            )
        ),
        (
            PLACE,
            {
                "jobs": [{"job": "bert-serve-10", "count": 3}, {"job": MOBILENET, "count": 2}],
                **{"gpus": 5, "gpu_model": H100, "objective": "fewest-cards"},
                **{"max_p99_ms": 200.0, "host_cores": 5.0},
            },
            f"place bert-serve-10:3 {MOBILENET}:2 --gpus 5 --gpu-model '{H100}' "
            "--objective fewest-cards --max-p99 200ms --host-cores 5",
            Placement,
        ),
        *(
            (
                PLACE,
                {"jobs": [*ffts, {"job": "gemm", "work_s": 7200}], "gpus": 2},
                "place fft:2 gemm --gpus 2 --work gemm=2h --min-speed fft=0.4",
                Placement,
            )
            for ffts in ([{**_FFT, "count": 2}], [_FFT, _FFT])
        ),
    ],
)
def test_answer_is_that_of_the_command_line(
    api: Api, advisor: Advisor, path: str, body: dict[str, Any], words: str, kind: type[Any]
) -> None:
    """Both doors give the same choice, plan, numbers, reasons and warnings."""
    if not words.startswith(("recommend", "replicas", "place")):
        body, words = {"jobs": jobs(*PAIR), **body}, f"recommend {' '.join(PAIR)} {words}"
    answer = api.post(path, body) | ({"said": None} if body.get("words") else {})
    assert answer == answered(advisor, *shlex.split(words))
    read(kind, json.dumps(answer))


GOOD = ("fft", "gemm")


def bad(*names: str, **more: Any) -> str:
    return json.dumps({"jobs": jobs(*names), **more})


_PLACED_WRONG: list[tuple[dict[str, Any], str]] = [
    ({"jobs": []}, "jobs: "),
    ({"jobs": [{"job": "fft", "count": 0}]}, "jobs[0].count"),
    ({"jobs": [{"job": "fft", "count": 1.5}]}, "jobs[0].count"),
    ({"jobs": [{"job": "fft", "count": 100_000}, {"job": "gemm"}]}, "100001 jobs"),
    ({"jobs": [{"job": f"job{n}"} for n in range(201)]}, "201 names"),
    ({"jobs": [{"job": "fft"}], "gpus": 0}, "gpus: "),
    ({"jobs": [{"job": "fft"}], "time_limit_s": 3600}, "time_limit_s"),
    ({"jobs": [{"job": "fft", "work_s": 0}]}, "jobs[0].work_s"),
    ({"jobs": [{"job": "fft"}], "objective": "max-min"}, "max-min"),
    ({"jobs": {"fft": 2}}, "jobs: "),
    ({"jobs": [{"job": "fft", "work_s": 3600.0}], "deadline_s": 60.0}, "longer than the deadline"),
    ({"jobs": ["fft"]}, "jobs[0]: it should be a JSON object"),
    ({"jobs": [_FFT, {"job": "fft", "min_speed": 1}]}, "two limits"),
]

_WRONG: list[tuple[str, str | dict[str, Any], str]] = [
    (URL, bad("fft", "gemn"), "similar names: gemm"),
    (URL, bad(*GOOD, max_p99_ms=50), "no latency of fft or gemm was measured"),
    (URL, bad(*GOOD, max_p99_ms=0), "max_p99_ms"),
    (URL, bad(*GOOD, max_p99_ms="50ms"), "max_p99_ms"),
    (URL, bad(), "jobs: "),
    (URL, bad(*["fft"] * 8), "jobs: "),
    (URL, {"jobs": [{"job": "fft", "copies": 8}]}, "jobs[0].copies"),
    (
        URL,
        {"jobs": [{"job": "fft", "copies": 4}, {"job": "gemm", "copies": 4}]},
        "these are 8 jobs",
    ),
    (URL, '{"jobs": "fft gemm"}', "jobs: "),
    (URL, bad("fft", "../gemm"), 'not "../gemm"'),
    (URL, bad("fft", "gemm\n\x1b[2J"), r'not "gemm\n\u001b[2J"'),
    (URL, '{"jobs": [{"job": "fft"}, {"job": 7}]}', "jobs[1].job"),
    (URL, bad(*GOOD, split="nine"), "split: there is no such key"),
    (URL, bad(*GOOD, fine="all"), "fine: "),
    (URL, bad(*GOOD, objective="speed"), "there is no objective speed"),
    (URL, bad(*GOOD, objective="fewest-cards"), "POST /v1/placements"),
    (URL, bad(*GOOD, gpu_model="A100"), "no profile on A100: fft, gemm"),
    (URL, bad(*GOOD, max_power_w="500 W"), "max_power_w"),
    (URL, bad(*GOOD, max_power_kw=0.5), "max_power_kw"),
    (URL, bad(*GOOD, max_power_w=math.nan), "max_power_w: it should be a finite number"),
    (URL, bad(*GOOD)[:-1] + ', "max_power_w": 1e999}', "max_power_w"),
    (URL, bad(*GOOD, max_power_w=True), "max_power_w"),
    (URL, bad(*GOOD, min_speed=50), "min_speed: it should be less than or equal to 1, not 50"),
    (URL, json.dumps({"jobs": jobs("fft", "gemm", min_speed=50)}), "jobs[0].min_speed"),
    (URL, '{"jobs": [{"job": "fft", "work_s": 60}, {"job": "gemm"}]}', "the work of gemm"),
    (URL, '{"jobs": [{"job": "fft"}', "JSON"),
    (URL, "[]", "body"),
    *((f"{URL}/batch", {"requests": [{}] * count}, "requests") for count in (0, 1001)),
    (URL, {"jobs": jobs("fft", "fft", "gemm", work_s=60.0)}, "work does not apply to 3 jobs"),
    (URL, {"jobs": jobs("fft"), "fine": True}, "fine does not apply to 1 job"),
    (
        URL,
        {"jobs": jobs("fft", "gemm"), "running": [30, 70]},
        "2 shares are of jobs that run, and 2 jobs are named",
    ),
    (URL, {"jobs": jobs("fft", "gemm"), "running": [0]}, "running"),
    (URL, {"jobs": jobs("fft"), "most": 8}, "most"),
    *((PLACE, {"gpus": 1, **body}, says) for body, says in _PLACED_WRONG),
]


@pytest.mark.parametrize(("path", "body", "says"), _WRONG)
def test_what_cannot_be_meant_is_refused(
    api: Api, path: str, body: str | dict[str, Any], says: str
) -> None:
    """A slip of the pen gets 422, a code, and the place: never an answer to another question."""
    text = body if isinstance(body, str) else json.dumps(body)
    status, code, message = error_of(api.ask("POST", path, content=text))
    assert (status, code) == (422, "bad-input")
    assert says in message


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/v1/jobs?limit=2000", 422, 'equal to 1000, not "2000"'),
        ("GET", "/v1/jobs?limit=x", 422, 'query.limit: it should be a valid integer, not "x"'),
        ("GET", "/v1/profiles/a%20%C2%9Bb", 400, r"cannot be printed: '/v1/profiles/a \x9bb'"),
        ("GET", "/v1/jobs?limit=1&limit=2", 422, "the query parameter limit is there twice"),
        ("GET", "/v1/job%C3%A4", 404, r"there is no GET '/v1/job\xe4' here"),
        (
            "GET",
            "/metrics?objectve=x",
            422,
            "there is no query parameter 'objectve'. There is none",
        ),
        ("PATCH", "/v1/jobs", 405, "there is no PATCH '/v1/jobs' here"),
        ("GET", f"/v1/profiles/{'x' * 300}", 422, f'not "{"x" * 59}...'),
    ],
)
def test_an_error_names_the_value(api: Api, method: str, path: str, status: int, says: str) -> None:
    got, _, message = error_of(api.ask(method, path))
    assert (got, says in message) == (status, True), message
    assert len(message) < 400


def test_batch_answers_each_request_in_order(api: Api) -> None:
    alike = {"jobs": jobs("gemm", "gemm"), "objective": "throughput", "gpu_model": "NVIDIA H200"}
    good = [{"jobs": jobs(*PAIR)}, alike]
    bad = [{"jobs": jobs("fft"), "fine": True}, {"jobs": jobs("fft", "nope")}, {}]
    good += [{"jobs": jobs("fft")}, {"jobs": jobs(*SET), **H200}]
    answers = api.post(f"{URL}/batch", {"requests": [good[0], *bad, *good[1:]]})
    read(BatchAnswer, json.dumps(answers))
    items = answers["answers"]
    told = [items[0], *items[4:]]
    assert [item["answer"] for item in told] == [api.post(URL, body) for body in good]
    assert [item["error"]["code"] for item in items[1:4]] == ["bad-input"] * 3
    assert "there is no job nope" in items[2]["error"]["message"]


@pytest.mark.parametrize(
    "names",
    [
        ("bert-serve-30", "triad"),
        ("bert-train", "vit-infer"),
        SET,
        ("mobilenet-train-b2", "mobilenet-train-b2", "triad"),
    ],
)
def test_an_answer_is_said_as_the_command_line_says_it(
    api: Api, advisor: Advisor, names: tuple[str, ...]
) -> None:
    """Word by word, but for the line of more options; and only where words are asked for."""
    body = {"gpu_model": "NVIDIA H200", "jobs": jobs(*names)}
    said = api.post(URL, body | {"words": True})["said"]
    printed = advisor("recommend", *names, "--gpu-model", "NVIDIA H200").out
    lines = [said["headline"], *(f"{name} {text}" for name, text in said["lines"])]
    assert " ".join(printed.split()).startswith(" ".join(" ".join(lines).split()) + " More")
    assert api.post(URL, body)["said"] is None


def test_a_number_of_copies_is_answered_as_so_many_jobs(api: Api) -> None:
    """Row by row: verdict, option and figures; and the answer is that about the best number."""
    for name in ("mobilenet-train-b2", "bert-train", "bert-serve-30", "walsh"):
        found = read(Recommendation, json.dumps(api.post(URL, {"jobs": jobs(name), **H200})))
        assert found.replicas
        assert found.replicas.copies[0].number == 1
        for row in found.replicas.copies[1:]:
            body = {"jobs": [{"job": name, "copies": row.number}], "every": True, **H200}
            asked = read(Recommendation, json.dumps(api.post(URL, body)))
            way = next(option for option in asked.candidates if option.split == row.split)
            assert row.verdict == asked.verdict
            assert asked.sharing_option is None or asked.sharing_option.split == row.split
            assert (row.power_w, row.energy_saved) == (way.power_w, way.energy_saved)
            assert row.speed.value == min(job.speed.value for job in way.jobs)
        best = {"jobs": [{"job": name, "copies": max(2, found.replicas.best)}], **H200}
        assert replace(found, replicas=None) == read(
            Recommendation, json.dumps(api.post(URL, best))
        )


CROSSED = ["bert-train", "dit-step", "vit-train"]


def test_gains_of_all_pairs_are_those_of_each(api: Api) -> None:
    """Cell by cell what a recommendation says, in the promised order, with a job's curve."""
    body = {"gpu_model": "NVIDIA H200", "jobs": CROSSED[::-1], "min_speed": 0.35}
    told = read(Gains, json.dumps(api.post("/v1/gains", body)))
    curves = [(job.job, job.size is None, job.shares[-1]) for job in told.jobs]
    assert curves == list(zip(CROSSED, (False, True, True), (100.0,) * 3, strict=True))
    assert [job.speeds[-1] for job in told.jobs] == pytest.approx([1.0] * 3, abs=0.01)
    pairs = [(a, b) for n, a in enumerate(CROSSED) for b in CROSSED[n:]]
    assert {*told.verdicts} >= {"share", "do not share"}
    for pair, *cell in zip(pairs, told.verdicts, told.splits, told.energy_saved, strict=True):
        one = {"jobs": jobs(*pair), "gpu_model": "NVIDIA H200", "min_speed": 0.35}
        asked = read(Recommendation, json.dumps(api.post(URL, one)))
        way = asked.sharing_option
        saved = way and pytest.approx(way.energy_saved.value, abs=1e-4)
        assert cell == [asked.verdict, way and way.split, saved]


@pytest.mark.slow
def test_gains_beside_one_job_are_its_partners(api: Api, advisor: Advisor) -> None:
    """All bundled jobs of the GPU model, and the best of them are those of the command line."""
    found = api.post("/v1/gains", {"gpu_model": "NVIDIA H200", "beside": "bert-train"})
    splits = dict(zip((job["job"] for job in found["jobs"]), found["splits"], strict=True))
    best = answered(advisor, "recommend", "bert-train", "--gpu-model", "NVIDIA H200")["partners"]
    assert {partner["partner"]: partner["split"] for partner in best}.items() <= splits.items()
    assert len(splits) > 30


def test_those_that_run_keep_their_shares(api: Api) -> None:
    """The answer is about the last job; also of two, of which one runs."""
    for names, shares in ((("triad", "mobilenet-train-b2"), [30]), (SET, [50, 20])):
        body = {"jobs": jobs(*names), "gpu_model": "NVIDIA H200", "running": shares}
        found = read(Recommendation, json.dumps(api.post(URL, body)))
        limited = [way for way in found.candidates if way.sharing == "limited"]
        assert limited
        for way in limited:
            assert [job.share_percent for job in way.jobs[:-1]] == shares


def test_who_joins_for_a_short_while_saves_little(api: Api) -> None:
    """Of two jobs the rest counts that the longer one does under its share, alone."""
    names = ("triad", "mobilenet-train-b2")

    def saved(*works_s: float) -> dict[str, float]:
        asked = [{"job": j, "work_s": s} for j, s in zip(names, works_s, strict=True)]
        body = {"jobs": asked, "gpu_model": "NVIDIA H200", "running": [26]}
        found = read(Recommendation, json.dumps(api.post(URL, body)))
        return {way.sharing: way.energy_saved.value for way in found.candidates}

    one_hour, short = saved(3600, 3600), saved(3600, 60)
    assert (one_hour["exclusive"], short["exclusive"]) == pytest.approx((0, 0))
    assert short["limited"] < one_hour["limited"]
    half = {"jobs": [{"job": names[0], "work_s": 60}, {"job": names[1]}], "running": [26]}
    _, _, message = error_of(api.ask("POST", URL, json=half))
    assert "nothing is said of the work of mobilenet-train-b2" in message
