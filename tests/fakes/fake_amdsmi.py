"""A fake `libamd_smi.so` that the real amdsmi package loads through ROCM_PATH.

amdsmi looks up every symbol of the library when it is imported, so their names are taken from its
own source; those that fake_amdsmi.c does not define answer "not supported".
"""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path


def wrapper() -> Path | None:
    """The source that names the symbols; None where the package is not installed."""
    spec = find_spec("amdsmi")
    return Path(spec.origin).parent / "amdsmi_wrapper.py" if spec and spec.origin else None


def build(wrapper: Path, rocm: Path) -> None:
    """Compile the library to where amdsmi finds it with ROCM_PATH=`rocm`."""
    (rocm / "lib").mkdir(parents=True)
    names = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper.read_text()))
    code = (Path(__file__).parent / "amdsmi/fake_amdsmi.c").read_text()
    rest = sorted(name for name in names if not re.search(rf"\b{name}\(", code))
    stubs = "".join(f"int {name}(void) {{ return 2; }}\n" for name in rest)
    source = rocm / "fake_amdsmi.c"
    source.write_text(code + stubs)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", rocm / "lib/libamd_smi.so", source], check=True)
