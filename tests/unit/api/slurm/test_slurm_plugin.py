"""The Lua plugin by itself: which jobs it rewrites, and what it does when the service fails."""

import json
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_http import Reply, Scripted, scripted_http
from slurm_lua import API, BATCH, INTERPRETERS, Plugin, install, run_lua

NEEDS = "needs a Lua interpreter (Debian package lua5.1, lua5.3 or lua5.4)"
pytestmark = pytest.mark.skipif(not INTERPRETERS, reason=NEEDS)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return install(INTERPRETERS[0], tmp_path / "etc")


@pytest.fixture
def service(plugin: Plugin) -> Iterator[Scripted]:
    with scripted_http() as server:
        plugin.configure(server.url)
        yield server


def answer(mine: float = 26, other: float = 50, sharing: str = "limited") -> Reply:
    """What the service says of the jobs a and b, as far as the plugin reads it."""
    jobs = [{"job": "a", "share_percent": mine}, {"job": "b", "share_percent": other}]
    choice = {"split": f"{mine}/{other}", "sharing": sharing, "jobs": jobs}
    return Reply(body={"jobs": [], "choice": choice})


# Which jobs are rewritten


def test_a_named_job_gets_its_share(plugin: Plugin, service: Scripted) -> None:
    """The request becomes gres/mps, and the comment says why."""
    service.will(answer())
    job = plugin.submit_one()
    assert (job["tres_per_node"], job["ADVISOR_SHARE_PERCENT"]) == ("gres:mps:26", "26")
    assert job["admin_comment"] == job["said"] == "advisor: 26 % of a GPU: beside b, split 26/50"
    assert service.seen[0].body == {"jobs": [{"job": "a"}, {"job": "b"}]}


@pytest.mark.parametrize(
    "fields",
    [
        *(
            {"tres_per_node": f"gres{asked}"}
            for asked in (":mps:80", ":gpu", ":gpu:h100:1", ":gpu:h100", "/gpu:1", "/gpu=1")
        ),
        {"comment": "my run advisor:job=a,with=b v2"},
        {"min_nodes": 4294967294},
        # `--gpus=1` and gres/mps together would be refused: it moves to the node.
        {"tres_per_node": "", "tres_per_job": "gres:gpu:1"},
    ],
)
def test_requests_for_one_gpu_are_rewritten(
    plugin: Plugin, service: Scripted, fields: dict[str, str | int]
) -> None:
    """In whichever way this version of Slurm writes them."""
    service.will(answer())
    job = plugin.submit_one(**fields)
    mark = "/" if "gres/" in str(fields) else ":"
    assert job["tres_per_node"] == f"gres{mark}mps:26"
    assert job.get("tres_per_job", "") == ""


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tres_per_node": "gres:gpu:2"}, "not one GPU"),
        ({"tres_per_node": "gres:gpu:h100:8"}, "not one GPU"),
        ({"tres_per_node": "gres:gpu:1,gres:nic:1"}, "not one GPU"),
        ({"tres_per_node": "gres:shard:4"}, "not one GPU"),
        ({"tres_per_node": ""}, "asks for no GPU"),
        ({"tres_per_task": "gres:gpu:1"}, "by --gres or --gpus alone"),
        ({"tres_per_socket": "gres:gpu:1"}, "by --gres or --gpus alone"),
        ({"tres_per_job": "gres:gpu:4"}, "asks for GPUs twice"),
        ({"min_nodes": 2}, "several nodes"),
    ],
)
def test_what_cannot_share_stays_as_it_is(
    plugin: Plugin, service: Scripted, fields: dict[str, str | int], why: str
) -> None:
    """Nothing is asked, and the comment says why, whatever the policy."""
    plugin.configure(service.url, without_advice="50")
    service.will(answer())
    job = plugin.submit_one(**fields)
    assert job["tres_per_node"] == fields.get("tres_per_node", "gres:gpu:1")
    assert why in job["admin_comment"]
    assert service.seen == []


def test_srun_stays_as_it_is(plugin: Plugin, service: Scripted) -> None:
    """Its step would ask for what the job has no more."""
    service.will(answer())
    (job,) = plugin.submit({name: text for name, text in BATCH.items() if name != "script"})
    assert job["tres_per_node"] == "gres:gpu:1"
    assert "only batch jobs" in job["admin_comment"]


@pytest.mark.parametrize("comment", ["", "my run", "myadvisor:job=a"])
def test_other_jobs_are_left_alone(plugin: Plugin, service: Scripted, comment: str) -> None:
    service.will(answer())
    job = plugin.submit_one(comment=comment)
    assert job["tres_per_node"] == "gres:gpu:1"
    assert "admin_comment" not in job
    assert (service.seen, job["said"], job["code"]) == ([], "", "0")


@pytest.mark.parametrize(
    "comment",
    [
        "advisor:", "advisor:job=", "advisor:job=a,with=", "advisor:a", "advisor:job=a,b=c",
        "advisor:job=-x", "advisor:job=a';touch${IFS}made;'", "advisor:job=$(touch${IFS}made)",
        "advisor:job=a,with=`touch${IFS}made`", 'advisor:job=a"}]',
    ],
)  # fmt: skip
def test_odd_names_reach_no_shell(plugin: Plugin, service: Scripted, comment: str) -> None:
    """A name is letters, digits, '.', '_' and '-', or nothing is asked."""
    service.will(answer())
    job = plugin.submit_one(comment=comment)
    assert job["tres_per_node"] == "gres:gpu:1"
    assert "is not advisor:job=NAME" in job["admin_comment"]
    assert service.seen == []
    assert not Path("made").exists()


# Shares


@pytest.mark.parametrize(
    ("mine", "other", "counted", "share"),
    [
        (50, 50, "50", "50"),
        (11, 90, "10", "11"),
        (90, 11, "89", "90"),
        (26.5, 50, "26", "26.5"),
        (0.5, 99.5, "1", "0.5"),
    ],
)
def test_what_is_counted_fits_on_a_gpu(
    plugin: Plugin, service: Scripted, mine: float, other: float, counted: str, share: str
) -> None:
    """Shares of whole SMs may add up to 101 %; Slurm would never start the second job."""
    service.will(answer(mine, other))
    for interpreter in INTERPRETERS:
        job = Plugin(interpreter, plugin.etc).submit_one()
        assert job["tres_per_node"] == f"gres:mps:{counted}"
        assert job["ADVISOR_SHARE_PERCENT"] == share


@pytest.mark.parametrize(
    ("sharing", "counted", "why"),
    [
        # Both fit, and neither is limited.
        ("uncapped", "50", "beside b"),
        # Nobody else fits beside them.
        ("exclusive", "100", "exclusive is better for a and b"),
        ("time-sliced", "100", "time-sliced is better for a and b"),
    ],
)
def test_jobs_without_limits_take_half_or_all(
    plugin: Plugin, service: Scripted, sharing: str, counted: str, why: str
) -> None:
    service.will(answer(100, 100, sharing))
    job = plugin.submit_one()
    assert (job["tres_per_node"], job["ADVISOR_SHARE_PERCENT"]) == (f"gres:mps:{counted}", "100")
    assert why in job["admin_comment"]


def test_no_split_is_an_answer(plugin: Plugin, service: Scripted) -> None:
    """Nothing keeps the limits: a GPU of its own, not the policy for failures."""
    plugin.configure(service.url, without_advice="30")
    error = {"code": "no-split", "message": "better off apart"}
    service.will(Reply(status=422, body={"error": error}))
    job = plugin.submit_one()
    assert job["tres_per_node"] == "gres:mps:100"
    assert "better off apart" in job["admin_comment"]


def test_a_gpu_may_count_otherwise_than_100(plugin: Plugin, service: Scripted) -> None:
    """The share stays, the count follows gres.conf."""
    plugin.configure(service.url, mps_per_gpu="1300")
    service.will(answer())
    job = plugin.submit_one()
    assert (job["tres_per_node"], job["ADVISOR_SHARE_PERCENT"]) == ("gres:mps:338", "26")


def test_the_gpu_model_is_asked_for(plugin: Plugin, service: Scripted) -> None:
    plugin.configure(service.url, gpu_model="NVIDIA H100 80GB HBM3")
    service.will(answer())
    plugin.submit_one()
    assert service.seen[0].body["gpu_model"] == "NVIDIA H100 80GB HBM3"


# Without advice

NONSENSE = [
    b"", b"<html>", b"{", b'{"choice"', b"[]", b"null", b'"text"', b"7", b"{}", b'{"choice": 7}',
    b'{"choice": {"sharing": "limited"}}', b"[" * 200_000, b"x" * 3_000_000, b"\xff\x00\n200",
    json.dumps(answer(0).body).encode(), json.dumps(answer(101).body).encode(),
    json.dumps(answer(sharing="later").body).encode(),
    json.dumps(answer().body).replace('"a"', '"c"').encode(),
    json.dumps(answer().body).replace(": 26}", ': "26"}').encode(),
    json.dumps(answer().body).encode() + b"}",
]  # fmt: skip


@pytest.mark.parametrize("body", NONSENSE, ids=lambda body: repr(body[:30]))
def test_nonsense_is_no_advice(plugin: Plugin, service: Scripted, body: bytes) -> None:
    """The job goes on as it was submitted, with the reason."""
    service.will(Reply(body=body))
    job = plugin.submit_one()
    assert (job["code"], job["tres_per_node"]) == ("0", "gres:gpu:1")
    assert job["admin_comment"].startswith("advisor: unchanged, without advice: ")
    assert len(job["admin_comment"]) < 320


@pytest.mark.parametrize(
    ("policy", "request_text", "share", "priority"),
    [
        ("pass", "gres:gpu:1", None, None),
        ("hold", "gres:gpu:1", None, "0"),
        ("50", "gres:mps:50", "50", None),
    ],
)
def test_the_policy_decides(
    plugin: Plugin,
    service: Scripted,
    policy: str,
    request_text: str,
    share: str | None,
    priority: str | None,
) -> None:
    """For a job without a profile as for everything else that is no advice."""
    plugin.configure(service.url, without_advice=policy)
    error = {"code": "bad-input", "message": "there is no job a. measure it"}
    service.will(Reply(status=422, body={"error": error}))
    job = plugin.submit_one()
    assert (job["code"], job["tres_per_node"]) == ("0", request_text)
    assert (job.get("ADVISOR_SHARE_PERCENT"), job.get("priority")) == (share, priority)
    assert "the service answered 422: there is no job a." in job["admin_comment"]


def test_a_unix_socket_is_asked(plugin: Plugin, tmp_path: Path) -> None:
    """Where the service listens on one, as its systemd unit lets it."""
    content = json.dumps(answer().body).encode()
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content

    class Once(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.wfile.write(reply)

    path = tmp_path / "s"
    with socketserver.UnixStreamServer(str(path), Once) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        plugin.configure(f"unix:{path}")
        job = plugin.submit_one()
        thread.join(30)
    assert job["tres_per_node"] == "gres:mps:26"


def test_a_service_that_is_down_costs_little(plugin: Plugin) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        plugin.configure(f"http://127.0.0.1:{probe.getsockname()[1]}")
        job = plugin.submit_one()
    assert job["tres_per_node"] == "gres:gpu:1"
    assert "curl: (7)" in job["admin_comment"]


def test_a_slow_service_is_not_waited_for(plugin: Plugin, service: Scripted) -> None:
    """Its time is bounded, and the next submissions do not wait at all until it is asked again."""
    plugin.configure(service.url, timeout_s="0.3", pause_s="60")
    service.will(Reply(body={}, after_s=30))
    began = time.monotonic()
    first, *others = plugin.submit(*[BATCH] * 20)
    assert time.monotonic() - began < 10
    assert "curl: (28)" in first["admin_comment"]
    assert all("too slow less than 60 s ago" in job["admin_comment"] for job in others)
    assert len(service.seen) == 1
    plugin.configure(service.url, timeout_s="0.3", pause_s="0")
    plugin.submit(BATCH, BATCH)
    assert len(service.seen) == 3


def test_a_service_that_hangs_up_is_no_advice(plugin: Plugin, service: Scripted) -> None:
    service.will(Reply(status=None))
    assert "no answer from http://127.0.0.1" in plugin.submit_one()["admin_comment"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("address", "http://x/'; touch made; '"), ("address", ""), ("timeout_s", "60"),
        ("timeout_s", "0"), ("timeout_s", "soon"), ("without_advice", "101"),
        ("without_advice", "0"), ("without_advice", "maybe"), ("mps_per_gpu", "0"),
        ("pause_s", "-1"), ("gpu_model", "x\"'"),
    ],
)  # fmt: skip
def test_a_wrong_setting_passes_jobs(
    plugin: Plugin, service: Scripted, name: str, text: str
) -> None:
    plugin.configure(**{"address": service.url, name: text})
    service.will(answer())
    job = plugin.submit_one()
    assert job["tres_per_node"] == "gres:gpu:1"
    assert f"advisor.conf: {name} = {text}" in job["admin_comment"]
    assert service.seen == []


def test_a_lost_settings_file_passes_jobs(plugin: Plugin) -> None:
    (plugin.etc / "advisor/advisor.conf").unlink()
    assert "there is no " in plugin.submit_one()["admin_comment"]


def test_the_shipped_settings_are_valid(plugin: Plugin) -> None:
    """What `advisor.conf` comes with is read without a complaint."""
    assert "is not valid" not in plugin.submit_one()["admin_comment"]


# JSON

PLAIN = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\b\f\n\r\t"), max_size=12
)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | NUMBERS | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=12,
)
_DUMP = """
local decode = dofile(PATH)
local function dump(value)
  if type(value) == "number" then return string.format("%.17g", value) end
  if type(value) == "string" then
    return "s" .. value:gsub(".", function(c) return string.format("%02x", c:byte()) end)
  end
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  for key, item in pairs(value) do parts[#parts + 1] = dump(key) .. ":" .. dump(item) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end
for _, text in ipairs(TEXTS) do print(dump(decode(text))) end
"""


@settings(max_examples=25)
@given(values=st.lists(VALUES, min_size=1, max_size=8), indent=st.sampled_from([None, 1]))
def test_json_is_read_as_it_was_meant(values: list[Any], indent: int | None) -> None:
    """Whatever the service may write, but for null, which is absent in Lua."""
    texts = [json.dumps(value, ensure_ascii=False, indent=indent) for value in values]
    quoted = ", ".join("'" + "".join(f"\\{b:03d}" for b in text.encode()) + "'" for text in texts)
    program = f"PATH = {json.dumps(str(API / 'json.lua'))}\nTEXTS = {{{quoted}}}\n{_DUMP}"
    for interpreter in INTERPRETERS:
        assert run_lua(interpreter, program).splitlines() == [_dump(value) for value in values]


def _dump(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.17g}"
    if isinstance(value, str):
        return "s" + value.encode().hex()
    named = cast("dict[str, Any]", value) if isinstance(value, dict) else None
    items = named.items() if named is not None else enumerate(cast("list[Any]", value), 1)
    return "{" + ",".join(sorted(f"{_dump(key)}:{_dump(item)}" for key, item in items)) + "}"
