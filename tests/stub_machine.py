"""A machine with devices that are not there: a STUB driver, compiler and environment.

machine = StubMachine(tmp_path, monkeypatch)
machine.devices("12 0 NVIDIA RTX PRO 6000", "12 0 NVIDIA RTX PRO 6000")
machine.devices()                     # all of them are gone
machine.driver("13000", init=0)       # what cuDriverGetVersion and cuInit answer

What is shown with it is how the tool deals with devices. Nothing runs on one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from patchwright.smoke import devices

# A shared library that answers the calls of driver.py from a file beside it.
_LIBCUDA = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
static int init_code, version, count;
static struct { int major, minor; char name[200]; } device[16];
static void load() {
  std::string path = std::string(getenv("LD_LIBRARY_PATH")) + "/stub-devices";
  FILE* f = fopen(path.c_str(), "r");
  if (!f || fscanf(f, "%d %d\n", &init_code, &version) != 2) { init_code = 999; return; }
  count = 0;
  while (fscanf(f, "%d %d %[^\n]\n", &device[count].major, &device[count].minor,
                device[count].name) == 3) ++count;
  fclose(f);
}
extern "C" {
int cuInit(unsigned) { load(); return init_code; }
int cuGetErrorString(int, const char** text) { *text = "stub error"; return 0; }
int cuDriverGetVersion(int* v) { *v = version; return 0; }
int cuDeviceGetCount(int* c) { *c = count; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetName(char* name, int size, int d) {
  strncpy(name, device[d].name, size); return 0; }
int cuDeviceGetAttribute(int* v, int what, int d) {
  *v = what == 75 ? device[d].major : device[d].minor; return 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int d) { *bytes = (size_t)96 << 30; return 0; }
int cuDeviceGetUuid_v2(unsigned char* uuid, int d) {
  memset(uuid, 0, 16); uuid[15] = d + 1; return 0; }
}
"""
_NVCC = """#!/bin/sh
case "$1" in
--version) echo "Cuda compilation tools, release 13.0, V13.0.88 (stub)" ;;
--dryrun) echo "#$ _HERE_={home}/bin" >&2; echo "#$ CICC_PATH={home}/nvvm/bin" >&2 ;;
esac
"""
STUB_TORCH = Path(__file__).parent / "stub_torch"


class StubMachine:
    """Devices, a compiler and an environment with a stub of torch, by environment variables."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if shutil.which("g++") is None:
            pytest.skip("needs g++ to compile the stub of the driver")
        self.folder = folder / "stub-machine"
        self.folder.mkdir()
        source = self.folder / "stub_libcuda.cpp"
        source.write_text(_LIBCUDA, encoding="ascii")
        library = self.folder / "libcuda.so.1"
        subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(self.folder))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(devices, "count_nodes", self.count_nodes)
        self._lines: tuple[str, ...] = ()
        self.driver("13000")
        home = self.folder / "cuda"
        for program in ("bin/nvcc", "nvvm/bin/cicc"):
            path = home / program
            path.parent.mkdir(parents=True)
            path.write_text(_NVCC.format(home=home), encoding="ascii")
            path.chmod(0o755)
        monkeypatch.setenv("CUDA_HOME", str(home))
        environment = self.folder / "environment"
        venv.create(environment, symlinks=True, with_pip=False)
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = environment / "lib" / minor / "site-packages"
        shutil.copytree(STUB_TORCH / "torch", self.packages / "torch")
        monkeypatch.setenv("PATCHWRIGHT_ENVIRONMENT", str(environment))

    def count_nodes(self) -> int:
        return len(self._lines)

    def driver(self, version: str, init: int = 0) -> None:
        self._head = f"{init} {version}"
        self.devices(*self._lines)

    def devices(self, *lines: str) -> None:
        """Set the devices: ``MAJOR MINOR NAME`` each; without any, all vanish."""
        self._lines = lines
        text = "".join(f"{line}\n" for line in (self._head, *lines))
        (self.folder / "stub-devices").write_text(text, encoding="ascii")
