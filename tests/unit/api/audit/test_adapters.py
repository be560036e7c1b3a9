"""Each program whose metrics are read, by lines of its own page or names of its own source."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from metrics_server import Samples, metrics_server
from prometheus_client.parser import text_string_to_metric_families
from scripted_http import Reply, scripted_http

from advisor.errors import InputError, SourceError
from advisor_audit.audit import Pages
from advisor_audit.sources import (
    CLOCK,
    FREE,
    LIMIT,
    POWER,
    TENSOR_ACTIVE,
    TOTAL,
    USED,
    Owner,
    Prometheus,
    Series,
    SeriesFile,
    as_series,
    read_exporters,
    see_exporters,
    session_for,
    write_lines,
)
from advisor_models.single_window import BUSY, DRAM, MEMORY_BUSY, SM

MIB, BEGIN_S = 2**20, 1_700_000_400.0

# NVIDIA/gpu-monitoring-tools, exporters/prometheus-dcgm/pod-devices-exporter/README.md, with names
# of etc/dcgm-exporter/1.x-compatibility-metrics.csv.
OLD_DCGM = "".join(
    f'{name}{{container_name="pod1-ctr",gpu="0",pod_name="pod1",pod_namespace="default",'
    f'uuid="GPU-2b399198-c670-a848-173b-d3400051a200"}} {value}\n'
    for name, value in {
        "dcgm_gpu_temp": 33,
        "dcgm_gpu_utilization": 40,
        "dcgm_mem_copy_utilization": 20,
        "dcgm_memory_clock": 810,
        "dcgm_sm_clock": 135,
        "dcgm_power_usage": 31.737,
        "dcgm_total_energy_consumption": 7.824041e06,
        "dcgm_fb_used": 900,
        "dcgm_fb_free": 15100,
    }.items()
)
# ROCm/device-metrics-exporter, pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go: its metrics, the labels
# that are always there, and card_series.
AMD = "".join(
    f'amd_{name}{{card_model="102-G30211-0C",card_series="AMD Instinct MI300X OAM",container="",'
    f'deployment_mode="baremetal",gpu_compute_partition_type="spx",gpu_id="2",'
    f'gpu_memory_partition_type="nps1",gpu_partition_id="0",hostname="tw038",job_id="8",'
    f'job_partition="gpu",job_user="user",namespace="",pod="",'
    f'serial_number="692409005408"{others}}} {value}\n'
    for name, others, value in (
        ("gpu_package_power", "", 617),
        ("gpu_gfx_activity", "", 97),
        ("gpu_umc_activity", "", 31),
        ("gpu_used_vram", "", 60000),
        ("gpu_total_vram", "", 196592),
        ("gpu_clock", ',clock_index="2",clock_type="system"', 132),
    )
)
# utkuozdemir/nvidia_gpu_exporter, internal/integration/testdata,
# linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__load.metrics.
NVIDIA_SMI = """\
# TYPE nvidia_smi_clocks_current_sm_clock_hz gauge
nvidia_smi_clocks_current_sm_clock_hz{uuid="00000000-0000-0000-0000-000000000000"} 1.98e+09
nvidia_smi_enforced_power_limit_watts{uuid="00000000-0000-0000-0000-000000000000"} 700
nvidia_smi_gpu_info{compute_cap="9.0",cuda_version="13.1",index="0",name="NVIDIA H100 80GB HBM3",\
uuid="00000000-0000-0000-0000-000000000000",vbios_version="96.00.A5.00.01"} 1
nvidia_smi_memory_free_bytes{uuid="00000000-0000-0000-0000-000000000000"} 6.4238911488e+10
nvidia_smi_memory_used_bytes{uuid="00000000-0000-0000-0000-000000000000"} 2.0780679168e+10
nvidia_smi_power_draw_instant_watts{uuid="00000000-0000-0000-0000-000000000000"} 625.68
nvidia_smi_power_draw_watts{uuid="00000000-0000-0000-0000-000000000000"} 631.95
nvidia_smi_utilization_gpu_ratio{uuid="00000000-0000-0000-0000-000000000000"} 1
nvidia_smi_utilization_memory_ratio{uuid="00000000-0000-0000-0000-000000000000"} 0.11
"""
# plazonic/nvidia_gpu_prometheus_exporter, main.go: namespace, names and labelsJobInfo; what GPM
# calls percent is divided by 100 there, and multiplied again by jobstats.
JOBSTATS = "".join(
    f'nvidia_gpu_{name}{{GPU_I_ID="",jobid="4711",minor_number="0",name="NVIDIA H100 80GB HBM3",'
    f'ordinal="0",userid="1001",uuid="GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"}} {value}\n'
    for name, value in {
        "power_usage_milliwatts": 412300,
        "memory_used_bytes": 9000 * MIB,
        "memory_total_bytes": 81559 * MIB,
        "duty_cycle": 93,
        "sm_util_percent": 0.41,
        "any_tensor_util_percent": 0.2,
        "dram_bw_util_percent": 0.3,
    }.items()
)
# guilbaults/slurm-job-exporter at 1620925f, slurm-job-exporter.py: names, labels and factors of its
# collector; with --monitor=nvml the last of them is not there, and utilization_gpu is utils.gpu.
SLURM_JOBS = "".join(
    f'slurm_job_{name}{{account="def-a",gpu="3",gpu_type="NVIDIA A100-SXM4-40GB",'
    f'slurmjobid="4712",user="ana"}} {value}\n'
    for name, value in {
        "power_gpu": 251000,
        "memory_usage_gpu": 9000 * MIB,
        "memory_total_gpu": 40960 * MIB,
        "utilization_gpu": 41,
        "utilization_gpu_memory": 7,
        "tensor_gpu": 12,
    }.items()
)
# utkuozdemir/nvidia_gpu_exporter at e656cd81: internal/integration/testdata and internal/captures,
# linux-x86_64__nvidia-h100-mig__590.48.01, load: four instances are in use, no utilisation is told.
MIG_PAGE = """\
nvidia_smi_enforced_power_limit_watts{uuid="00000000-0000-0000-0000-000000000000"} 700
nvidia_smi_gpu_info{index="0",name="NVIDIA H100 80GB HBM3",\
uuid="00000000-0000-0000-0000-000000000000"} 1
nvidia_smi_memory_free_bytes{uuid="00000000-0000-0000-0000-000000000000"} 7.3354182656e+10
nvidia_smi_memory_used_bytes{uuid="00000000-0000-0000-0000-000000000000"} 1.1665408e+10
nvidia_smi_mig_mode_current{uuid="00000000-0000-0000-0000-000000000000"} 1
nvidia_smi_mig_mode_pending{uuid="00000000-0000-0000-0000-000000000000"} 1
nvidia_smi_power_draw_instant_watts{uuid="00000000-0000-0000-0000-000000000000"} 447.35
"""
MIG_HEADER = (
    "timestamp, name, uuid, memory.used [MiB], memory.free [MiB], utilization.gpu [%], "
    "power.draw.instant [W], enforced.power.limit [W], mig.mode.current"
)
MIG_ROW = (
    "NVIDIA H100 80GB HBM3, GPU-00000000-0000-0000-0000-000000000000, 11125 MiB, 69956 MiB, "
    "[N/A], 447.35 W, 700.00 W, Enabled"
)
# ROCm/rocm_smi_lib at a1295714, python_smi_tools/rocm_smi.py: showProductName, showUId, showPower,
# showMaxPower, showMemInfo, showGpuUse, showMemUse, showCurrentClocks by formatJson; in rocm-5.7.1
# "Card series" and "GPU memory use (%)".
ROCM_SMI = {
    "Card Series": "AMD Instinct MI300X OAM",
    "Unique ID": "0x5a1c1f4c7d6e8b21",
    "Current Socket Graphics Package Power (W)": "617.0",
    "Max Graphics Package Power (W)": "750.0",
    "VRAM Total Memory (B)": str(196592 * MIB),
    "VRAM Total Used Memory (B)": str(60000 * MIB),
    "GPU use (%)": "97",
    "GFX Activity": "97",
    "GPU Memory Read/Write Activity (%)": "31",
    "sclk clock speed:": "(2100Mhz)",
    "Compute Partition": "SPX",
}

Wanted = tuple[str, str, str, Mapping[str, float | None]]
H100, NULL_GPU = "NVIDIA H100 80GB HBM3", "GPU-00000000-0000-0000-0000-000000000000"
PAGES: Mapping[str, tuple[str, Wanted]] = {
    "dcgm-exporter 1.x": (
        OLD_DCGM,
        (
            "GPU-2b399198-c670-a848-173b-d3400051a200",
            "",
            "pod1",
            {POWER: 31.737, CLOCK: 135, BUSY: 40, MEMORY_BUSY: 20, USED: 900, FREE: 15100},
        ),
    ),
    "device-metrics-exporter": (
        AMD,
        (
            "692409005408",
            "AMD Instinct MI300X OAM",
            "job 8",
            {POWER: 617, BUSY: 97, MEMORY_BUSY: 31, USED: 60000, TOTAL: 196592},
        ),
    ),
    "nvidia_gpu_exporter": (
        NVIDIA_SMI,
        (
            NULL_GPU,
            H100,
            f"{NULL_GPU} #1",
            {POWER: 625.68, LIMIT: 700, CLOCK: 1980, BUSY: 100, MEMORY_BUSY: 11, USED: 19818},
        ),
    ),
    "jobstats": (
        JOBSTATS,
        (
            "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52",
            H100,
            "job 4711",
            {POWER: 412.3, BUSY: 93, SM: 41, TENSOR_ACTIVE: 20, DRAM: 30}
            | {USED: 9000, TOTAL: 81559},
        ),
    ),
    "slurm-job-exporter": (
        SLURM_JOBS,
        (
            "node1/3",
            "NVIDIA A100-SXM4-40GB",
            "job 4712",
            {POWER: 251, SM: 41, TENSOR_ACTIVE: 12, DRAM: 7} | {USED: 9000, TOTAL: 40960},
        ),
    ),
    "slurm-job-exporter by NVML": (
        SLURM_JOBS[: SLURM_JOBS.index("slurm_job_tensor_gpu")],
        (
            "node1/3",
            "NVIDIA A100-SXM4-40GB",
            "job 4712",
            {POWER: 251, BUSY: 41, MEMORY_BUSY: 7, SM: None, DRAM: None}
            | {USED: 9000, TOTAL: 40960},
        ),
    ),
}


TOGETHER = ("device-metrics-exporter", "nvidia_gpu_exporter", "jobstats")


def samples(page: str) -> Samples:
    """What a Prometheus makes of half an hour of a page."""
    times_s = [BEGIN_S + 60 * n for n in range(1, 31)]
    return [
        ({**row.labels, "__name__": name, "instance": "node1"}, [(t, row.value) for t in times_s])
        for family in text_string_to_metric_families(page)
        for row in family.samples
        for name in [row.name]
    ]


def kept(rows: Samples, folder: Path) -> SeriesFile:
    with (folder / "series.jsonl").open("wb") as file:
        write_lines(file, (Series(of, [t for t, _ in at], [v for _, v in at]) for of, at in rows))
    return SeriesFile(folder / "series.jsonl", step_s=60)


def opened(url: str) -> Prometheus:
    return Prometheus(url, session_for({}), begin_s=BEGIN_S, end_s=BEGIN_S + 1800, step_s=60)


def check(source: SeriesFile | Prometheus, folder: Path, wanted: Wanted) -> None:
    folder.mkdir()
    pages = Pages.read(source, "namespace", folder, lambda _done, _total: None)
    found = [one for n in range(len(pages.pages)) for one in pages.segments(n) if one.owner]
    gpu, model, owner, means = wanted
    assert {(one.gpu, one.model, one.owner and one.owner.name) for one in found} == {
        (gpu, model, owner)
    }
    known = found[len(found) // 2].means
    assert {name: known.get(name) for name in means} == {
        name: value if value is None else pytest.approx(value, rel=1e-4)
        for name, value in means.items()
    }


@pytest.mark.parametrize("program", PAGES)
def test_a_page_is_read_in_our_units(program: str, tmp_path: Path) -> None:
    """From a file of series, and from a Prometheus; and an exporter of it is not refused."""
    page, wanted = PAGES[program]
    rows = samples(page)
    check(kept(rows, tmp_path), tmp_path / "file", wanted)
    with metrics_server(rows) as server:
        check(opened(server.url), tmp_path / "asked", wanted)
    with scripted_http() as exporter:
        exporter.will(Reply(body=page.encode(), headers={"Content-Type": "text/plain"}))
        see_exporters([exporter.url])
        assert wanted[1] in {of.get("modelName", "") for of, _ in read_exporters([exporter.url])}


def test_what_an_exporter_has_is_told_at_once() -> None:
    """And not after the minutes: here a node_exporter, and cards that no label names."""
    with scripted_http() as exporter:
        for page, said in (
            (
                "node_load1 0.5\nnode_load5 0.4\n",
                "2 other metrics, such as node_load1, node_load5,",
            ),
            (
                'gpu_package_power{gpu_id="0"} 212\n',
                "it is AMD's device-metrics-exporter, and no row",
            ),
        ):
            exporter.will(Reply(body=page.encode(), headers={"Content-Type": "text/plain"}))
            with pytest.raises(SourceError, match="has no metrics of GPUs") as raised:
                see_exporters([exporter.url])
            assert said in raised.value.why


def test_rows_of_jobs_count_no_card_again(tmp_path: Path) -> None:
    """Where both run, those of slurm-job-exporter, which have no UUID, are left out."""
    both = kept([*samples(JOBSTATS), *samples(SLURM_JOBS)], tmp_path)
    check(both, tmp_path / "p", PAGES["jobstats"][1])


def test_a_site_of_several_exporters_is_read_whole(tmp_path: Path) -> None:
    """Cards of AMD beside those of NVIDIA, and one that two exporters show as one."""
    also = f'DCGM_FI_DEV_FB_USED{{UUID="{NULL_GPU}",modelName="{H100}",pod="a"}} 19000\n'
    rows = [row for page in (AMD, NVIDIA_SMI, JOBSTATS, also) for row in samples(page)]
    with metrics_server(rows) as server:
        pages = Pages.read(opened(server.url), "all", tmp_path, lambda _done, _total: None)
    found = {one.gpu: one for one in pages.segments(0) if one.owner}
    assert {gpu: one.means[POWER] for gpu, one in found.items()} == pytest.approx(
        {gpu: means[POWER] for gpu, _, _, means in (PAGES[n][1] for n in TOGETHER)}
    )
    assert (found[NULL_GPU].means[USED], found[NULL_GPU].owner) == (19000, Owner("", "a"))


def states(source: SeriesFile | Prometheus, folder: Path) -> dict[tuple[str, str], float]:
    """Watts of each GPU in each state, but where nothing was seen."""
    folder.mkdir(exist_ok=True)
    pages = Pages.read(source, "namespace", folder, lambda _done, _total: None)
    found = [one for n in range(len(pages.pages)) for one in pages.segments(n)]
    return {(one.gpu, one.state): one.means[POWER] for one in found if one.state != "unseen"}


def test_a_part_of_an_amd_card_is_no_card(tmp_path: Path) -> None:
    """In CPX the first part shows the watts of the whole."""
    with metrics_server(samples(AMD.replace('"spx"', '"cpx"'))) as server:
        assert states(opened(server.url), tmp_path) == {("692409005408", "mig"): 617}


def test_two_dies_of_a_module_have_one_power(tmp_path: Path) -> None:
    """An MI250's even dies show those of both: ml-energy/zeus, pull 203; rocm_smi.py, showPower."""
    die = AMD.replace("AMD Instinct MI300X OAM", "AMD Instinct MI250X")
    dies = "".join(
        die.replace('gpu_id="2"', f'gpu_id="{n}"')
        .replace("692409005408", f"69240900540{n}")
        .replace("} 617", f"}} {watts}")
        for n, watts in enumerate((89, 0, 93, 0))
    )
    with metrics_server(samples(dies)) as server:
        found = states(opened(server.url), tmp_path / "pages")
    assert found == {("tw038/0-1", "mig"): 89, ("tw038/2-3", "mig"): 93}
    power = "Average Graphics Package Power (W)"
    card = {name: of for name, of in ROCM_SMI.items() if "Package Power" not in name}
    card["Card Series"] = "AMD Instinct MI250X"
    cards = {"card0": {**card, power: "512.0"}, "card1": {**card, power: "N/A (Secondary die)"}}
    log = tmp_path / "rocm.log"
    log.write_text("".join(f"{BEGIN_S + 60 * n} {json.dumps(cards)}\n" for n in range(30)))
    source = SeriesFile(as_series(log, tmp_path), step_s=60)
    assert states(source, tmp_path / "of log") == {("/0-1", "mig"): 512}


def test_a_log_of_rocm_smi_is_read(tmp_path: Path) -> None:
    """Each line behind its time; a warning in one, and one that was cut off, are passed over."""
    line = json.dumps({"card0": ROCM_SMI, "system": {"Driver version": "6.8.5"}})
    lines = [f"{BEGIN_S + 60 * n:.0f} {line}" for n in range(30)]
    lines[4] += " WARNING: AMD GPU device(s) is/are in a low-power state"
    log = tmp_path / "rocm.log"
    log.write_text("\n".join([*lines, lines[0][:99]]))
    means = {POWER: 617, LIMIT: 750, BUSY: 97, MEMORY_BUSY: 31, USED: 60000, TOTAL: 196592}
    gpu = ROCM_SMI["Unique ID"]
    wanted = gpu, ROCM_SMI["Card Series"], f"{gpu} #1", {**means, CLOCK: 2100}
    check(SeriesFile(as_series(log, tmp_path), step_s=60), tmp_path / "pages", wanted)


def test_a_card_in_mig_is_told_by_its_mode(tmp_path: Path) -> None:
    """Of a Prometheus and of a log; without a label of an instance, or utilisation."""
    with metrics_server(samples(MIG_PAGE)) as server:
        found = states(opened(server.url), tmp_path / "pages")
    assert found == {(NULL_GPU, "mig"): pytest.approx(447.35)}
    rows = [f"2026/07/14 09:{n:02}:44.579, {MIG_ROW}" for n in range(30)]
    log = tmp_path / "mig.csv"
    log.write_text("\n".join([MIG_HEADER, *rows]))
    assert states(SeriesFile(as_series(log, tmp_path), step_s=60), tmp_path / "of log") == found


def test_a_log_of_nvidia_smi_is_read(tmp_path: Path) -> None:
    """With units or without, begun again in the same file, and cut off where it was stopped."""
    # Header and values of nvidia-smi 590.48.01: utkuozdemir/nvidia_gpu_exporter,
    # internal/captures/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt, load.
    header = (
        "timestamp, name, uuid, memory.total [MiB], memory.used [MiB], memory.free [MiB], "
        "utilization.gpu [%], utilization.memory [%], power.draw.instant [W], "
        "enforced.power.limit [W], clocks.current.sm [MHz], temperature.memory"
    )
    values = (
        "NVIDIA H100 80GB HBM3, GPU-00000000-0000-0000-0000-000000000000, 81559 MiB, 19818 MiB, "
        "61263 MiB, 100 %, 11 %, 625.68 W, 700.00 W, 1980 MHz, [N/A]"
    )
    bare = re.sub(" (MiB|%|W|MHz)(?=,)", "", values)
    times = [f"2026/07/14 08:{n:02}:53.353" for n in range(30)]
    lines = [f"{at}, {values if n < 15 else bare}" for n, at in enumerate(times)]
    log = tmp_path / "gpu.csv"
    log.write_text("\n".join([header, *lines[:15], header, *lines[15:], "2026/07/14 08:3"]))
    gpu, model, owner, means = PAGES["nvidia_gpu_exporter"][1]
    wanted = gpu, model, owner, {**means, TOTAL: 81559, FREE: 61263}
    check(SeriesFile(as_series(log, tmp_path), step_s=60), tmp_path / "pages", wanted)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_whole_answer_is_read_as_a_file(indent: int | None, tmp_path: Path) -> None:
    result = [{"metric": of, "values": at} for of, at in samples(JOBSTATS)]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    path = tmp_path / "answer.json"
    path.write_text(json.dumps(answer, indent=indent))
    found = SeriesFile(as_series(path, tmp_path), step_s=60)
    check(found, tmp_path / "pages", PAGES["jobstats"][1])
    path.write_text(path.read_text()[:-9])
    with pytest.raises(InputError, match="no whole answer"):
        as_series(path, tmp_path)
