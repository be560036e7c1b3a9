"""Fixtures of all tests."""

import functools
import gc
import hashlib
import os
import pickle
import shutil
import signal
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_amdsmi
import fake_nvml
import host as fake_host
import new_database
import postgres
import pytest
from command_line import Advisor, in_this_process
from forked import forking
from hypothesis import settings
from launched import no_leftovers
from raw_server import RawServer, raw_server
from serving import Served, serving
from sqlalchemy import event
from sqlalchemy.engine import Engine

from advisor.validity.sensor_record import PowerChannel
from advisor_data import bundled
from advisor_power import sensor
from advisor_power.data import predictor
from advisor_power.data.predictor import model_folder
from advisor_power.sensor import Trace, power_channel

# A loaded machine is slow; that is no fault of what is tested. Who changes something else sees the
# same examples as before and none that another run remembers; `make nightly` searches.
settings.register_profile(
    "advisor", deadline=None, max_examples=50, derandomize=True, database=None
)
settings.register_profile("nightly", deadline=None, max_examples=500, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "advisor"))

# A shell lets its background jobs ignore Ctrl-C, and nohup lets its command ignore a lost terminal:
# both hand that on to what they start. A command that measures heeds it, and tests begin without.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure() -> None:
    """What is imported and collected stays: to look for garbage in it takes a third of the time."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with real parts count as slow."""
    for item in items:
        if any(map(item.get_closest_marker, ("postgres", "prometheus", "ray", "slurm"))):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Garbage of tests is looked for in what they make, as rarely as in commands."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.fixture(scope="session")
def fake_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the fake driver libraries."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler (cc) for the fake driver libraries")
    folder = tmp_path_factory.mktemp("lib")
    fake_host.build_cuda(folder)
    fake_nvml.build(folder)
    return folder


@pytest.fixture(scope="session")
def hip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler (cc) for the fake HIP library")
    folder = tmp_path_factory.mktemp("hip")
    library = folder / "libamdhip64.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", library, fake_host.FAKES / "hip/fake_hip.c"], check=True)
    return folder


@pytest.fixture(scope="session")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (wrapper := fake_amdsmi.wrapper()) is None or shutil.which("cc") is None:
        pytest.skip("needs the amdsmi package (extra: amd) and a C compiler (cc)")
    folder = tmp_path_factory.mktemp("rocm") / "rocm"
    fake_amdsmi.build(wrapper, folder)
    return folder


@pytest.fixture
def host(fake_libraries: Path) -> Iterator[fake_host.FakeHost]:
    """A host with one fake GPU, and a database without points.

    Its folder has a short name, since socket paths must be short.
    """
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        (Path(folder) / "nvml" / "gpu0").mkdir(parents=True)
        new_database.make_home(Path(folder) / "home")
        yield fake_host.FakeHost(Path(folder), fake_libraries)


@pytest.fixture
def jobs(host: fake_host.FakeHost) -> Iterator[fake_host.FakeHost]:
    """The same with two good jobs, of which nothing lives on after the test."""
    for name in ("one", "two"):
        host.write_job(name)
    with no_leftovers(host):
        yield host


@pytest.fixture
def h200(jobs: fake_host.FakeHost) -> fake_host.FakeHost:
    """A host whose GPU is one that bundled profiles are of, with jobs of the same names."""
    (jobs.folder / "nvml" / "gpu0" / "name").write_text("NVIDIA H200")
    for name in ("triad", "gemm"):
        jobs.write_job(name)
    return jobs


@pytest.fixture(scope="session", autouse=True)
def commands() -> Iterator[None]:
    """What most commands import is imported once for all that run to their end."""
    with forking():
        yield


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a YAML file without the indentation that its text has in a test."""

    def write(text: str) -> Path:
        (path := tmp_path / "train.yaml").write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("service")) as served:
        yield served


@pytest.fixture
def loose_umask() -> Iterator[None]:
    """Whatever is made is open to everybody, unless somebody sees to it."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def anyio_backend() -> str:
    """Tests that await run in an event loop of the standard library."""
    return "asyncio"


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    """The command line in this process, in a folder that has nothing yet."""
    return in_this_process(capsys, monkeypatch, tmp_path)


@pytest.fixture(scope="session", autouse=True)
def bundled_points() -> Iterator[None]:
    """A fifth of a second, and hundreds of tests look at the same ones."""
    with bundled_once():
        yield


# telemetry


@pytest.fixture
def nvml(fake_libraries: Path, tmp_path: Path) -> fake_nvml.FakeNvml:
    """A fake NVML of its own state, all defaults."""
    return fake_nvml.FakeNvml(fake_libraries, tmp_path / "nvml")


@pytest.fixture(scope="session", autouse=True)
def channels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A fit takes seconds, and many tests look at the same readings."""
    base = tmp_path_factory.getbasetemp()
    # Workers of one run have folders of their own in one folder.
    known = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "channels"
    known.mkdir(exist_ok=True)
    with analysed_once(known):
        yield


# power


@pytest.fixture(scope="session")
def bundled_power(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up card and two kernels as they come with the package; nobody writes into it."""
    from made_up_bundle import made_up_bundle

    return made_up_bundle(tmp_path_factory.mktemp("made-up"))


# power by data


@pytest.fixture(scope="session")
def input_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a model of bf16 on H200 with a limit of 400 W; nobody writes into it."""
    # scikit-learn takes a second that tests of other things should not wait.
    from made_up_input_points import made_up_model

    folder = tmp_path_factory.mktemp("input-model")
    made_up_model(folder, groups=6, gpu_model="NVIDIA H200", limit_w=400.0)
    return folder


@pytest.fixture(scope="module")
def with_input_model(tmp_path_factory: pytest.TempPathFactory, input_model: Path) -> Path:
    """A folder whose home has that model."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(input_model, model_folder(folder / "home"), dirs_exist_ok=True)
    return folder


@pytest.fixture
def no_bundled_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No model of power by data comes with the package."""
    monkeypatch.setattr(predictor, "BUNDLED", tmp_path / "not-bundled")


# services


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawServer]:
    """A service with what comes with advisor, in a process of its own."""
    with raw_server(tmp_path_factory.mktemp("serve") / "home") as server:
        yield server


# databases


@pytest.fixture(scope="session", autouse=True)
def tables() -> Iterator[None]:
    """Making them takes a tenth of a second, and hundreds of tests begin without a file."""
    with new_database.tables_made_once():
        yield


@pytest.fixture
def small_disk() -> Iterator[None]:
    """SQLite finds its disk full at 128 pages."""

    def limit(connection: Any, _record: object) -> None:
        connection.execute("PRAGMA max_page_count=128")

    event.listen(Engine, "connect", limit)
    yield
    event.remove(Engine, "connect", limit)


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[postgres.Server]:
    """A running PostgreSQL server; skips where its programs are not installed."""
    with postgres.running_server() as server:
        yield server


@pytest.fixture
def postgres_empty(postgres_server: postgres.Server, request: pytest.FixtureRequest) -> str:
    """The address of a database of its own for each test."""
    letters = (c if c.isalnum() else "_" for c in request.node.name.removeprefix("test_"))
    return postgres_server.create_database("".join(letters)[:60])


@pytest.fixture
def postgres_url(postgres_empty: str) -> str:
    """The address of a database with its tables."""
    from advisor_data.store import migrate  # few tests need SQLAlchemy

    migrate(postgres_empty, Path())
    return postgres_empty


# Made-up recordings differ in little: a channel with the same readings is analysed once.


@contextmanager
def analysed_once(known: Path) -> Generator[None]:
    """Fit each power channel once for the same readings and stages.

    Processes of one test run share the folder of fits.
    """

    def remembered(trace: Trace, name: str) -> tuple[PowerChannel | None, str]:
        if (readings := trace.series.get(name)) is None:
            return power_channel(trace, name)
        seen = readings.times_s.tobytes() + readings.values.tobytes() + repr(trace.stages).encode()
        file = known / hashlib.sha256(name.encode() + seen).hexdigest()
        if not file.exists():
            draft = file.with_suffix(f".{os.getpid()}")
            draft.write_bytes(pickle.dumps(power_channel(trace, name)))
            draft.replace(file)
        return pickle.loads(file.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensor, "power_channel", remembered)
        yield


# The points that come with the package are parsed once by each process of the tests.


@contextmanager
def bundled_once() -> Generator[None]:
    """Meanwhile a file is parsed anew only where a test has put another folder in its place."""
    parse = vars(bundled)["_points"]

    @functools.cache
    def parsed(_folder: Callable[..., Any], *what: Any) -> tuple[Any, ...]:
        return tuple(parse(*what))

    def points(name: str, kind: type, jobs: Iterable[str] | None) -> list[Any]:
        among = None if jobs is None else frozenset(jobs)
        return list(parsed(bundled.resources.files, name, kind, among))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "_points", points)
        yield
