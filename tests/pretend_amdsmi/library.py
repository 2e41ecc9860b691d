"""A pretend `libamd_smi.so` for AMD's own binding: all that it imports, and a few answers."""

import importlib.util
import re
import subprocess
from pathlib import Path

# The binding looks for every function of its release; the one that is installed says which these are.
_NAME = re.compile(r"_libraries\['libamd_smi\.so'\]\.(\w+)")
_ANSWERS = """
#include <stdint.h>
#include <string.h>
#define NOT_SUPPORTED 2
#define NOT_FOUND 31
static int known;
int amdsmi_init(uint64_t flags) { return flags == 2 ? 0 : NOT_SUPPORTED; }
int amdsmi_shut_down(void) { return 0; }
int amdsmi_get_processor_handle_from_bdf(uint64_t bdf, void **out) {
    /* 0000:05:00.0 is function 0, device 0, bus 5 in this union's bits. */
    if (bdf != 5ull << 8) return NOT_FOUND;
    *out = &known;
    return 0;
}
int amdsmi_get_gpu_asic_info(void *handle, char *out) {
    if (handle != &known) return NOT_FOUND;
    strcpy(out, MARKET_NAME);
    return 0;
}
int amdsmi_get_clock_info(void *handle, int kind, uint32_t *out) {
    if (handle != &known) return NOT_FOUND;
    out[0] = 132; out[1] = 132;
    out[2] = kind == 0 ? 2100 : kind == 4 ? 1300 : 0xffffffff;
    return 0;
}
"""


def build_library(folder: Path, market_name: str) -> Path:
    """Compile it below a folder, as `lib/libamd_smi.so`; return the folder, which is what ROCM_PATH names."""
    spec = importlib.util.find_spec("amdsmi")
    assert spec is not None
    assert spec.origin is not None
    binding = Path(spec.origin).with_name("amdsmi_wrapper.py").read_text()
    others = sorted(set(_NAME.findall(binding)) - set(re.findall(r"^int (\w+)\(", _ANSWERS, re.MULTILINE)))
    source = folder / "amd_smi.c"
    stubs = "".join(f"int {name}(void) {{ return NOT_SUPPORTED; }}\n" for name in others)
    source.write_text(f'#define MARKET_NAME "{market_name}"\n{_ANSWERS}{stubs}')
    (folder / "lib").mkdir()
    command = ["cc", "-shared", "-fPIC", "-o", str(folder / "lib/libamd_smi.so"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return folder
