# SPDX-License-Identifier: GPL-2.0
"""The fast lane without a kernel: its command line, its CPUs, what of the host the shim hides, its configuration."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wblib.catalog import axes as ax
from wblib.catalog import suites
from wblib.guest import qemu, uml
from wblib.kernel import kconfig
from wbtop.errors import WbError

READ = "import ctypes; libc = ctypes.CDLL(None); libc.sbrk.restype = ctypes.c_void_p; " \
       "bytes_ = ctypes.create_string_buffer(20); libc.getrandom(bytes_, 20, 0); " \
       "print(bytes_.raw.hex(), hex(libc.sbrk(0)))"


@pytest.fixture(name="shim", scope="module")
def _shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shim") / "umlhost.so"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", made,
                    uml.GUEST / "umlhost.c", "-ldl"], check=True)
    return made


def _seen(shim: Path, seed: str) -> list[str]:
    """Random bytes and heap of a program behind the shim."""
    env = {"LD_PRELOAD": str(shim), "UMLHOST_SEED": seed}
    done = subprocess.run([sys.executable, "-I", "-S", "-c", READ], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_shim_gives_what_the_seed_says(shim: Path) -> None:
    one, again, other = (_seen(shim, seed)[0] for seed in ("1", "1", "2"))
    assert one == again != other
    # splitmix64 from state 1, little endian, a part of a word at the end; the interpreter has taken some before.
    state, words = 1, []
    for _ in range(64):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        words.append((z ^ z >> 31).to_bytes(8, "little"))
    assert one in [b"".join(words[i:])[:20].hex() for i in range(60)]


def test_the_guests_programs_choose_nothing_by_the_cpu() -> None:
    """What glibc says of itself: no directories of a newer CPU, no XSAVE, sizes that are not the host's."""
    done = subprocess.run(["/lib64/ld-linux-x86-64.so.2", "--list-diagnostics"], env={"GLIBC_TUNABLES": uml.TUNABLES},
                          capture_output=True, text=True, check=True)
    says = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    features = "x86.cpu_features."
    assert says["dl_hwcaps_subdirs_active"] == "0x0"
    assert says[features + "xsave_state_size"] == "0x0"
    assert {says[features + f"{what}_cache_size"] for what in ("data", "shared")} == {"0x200000"}
    preferred = {k for k, v in says.items() if k.startswith(features + "preferred.") and int(v, 16)}
    assert not preferred & {features + f"preferred.{name[1:]}" for name in uml.HWCAPS.split(",")}


def test_a_killed_tracer_takes_its_child_along(shim: Path, tmp_path: Path) -> None:
    """PTRACE_O_EXITKILL: what UML's guest runs must not go on as a process of the host."""
    source = tmp_path / "tracer.c"
    source.write_text(r"""
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
	pid_t child = fork();

	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (;;)
			pause();
	}
	waitpid(child, NULL, 0);
	if (ptrace(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_TRACESYSGOOD))
		return 1;
	ptrace(PTRACE_CONT, child, 0, 0);
	printf("%d\n", child);
	fflush(stdout);
	for (;;)
		pause();
}
""")
    program = tmp_path / "tracer"
    subprocess.run(["gcc", "-o", program, source], check=True)
    with subprocess.Popen([program], env={"LD_PRELOAD": str(shim)}, stdout=subprocess.PIPE, text=True) as tracer:
        assert tracer.stdout
        child = int(tracer.stdout.readline())
        os.kill(child, 0)
        tracer.kill()
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        subprocess.run(["sleep", "0.05"], check=True)
    else:
        os.kill(child, 9)
        pytest.fail("the child outlived its tracer")


def test_the_heap_is_where_it_always_is(shim: Path) -> None:
    # The interpreter is a PIE: its heap is above the fixed place, and then told as it is.
    assert int(_seen(shim, "1")[1], 16) >= 0xB0000000


def test_the_command_names_no_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Behind the kernel's name the words are the same wherever it runs: they are in the guest's dmesg."""
    monkeypatch.setattr(uml, "shim", lambda: Path("/s.so"))
    monkeypatch.setattr(uml, "memory_dir", lambda _mib: "/m")
    told = []
    for place in ("here", "there"):
        guest = qemu.Guest(tmp_path / "linux", tmp_path / place / "initrd", "case", ("--seed=3",), 3, 512, "fast")
        argv = qemu.command(guest, tmp_path / place)
        told.append(argv[argv.index(str(guest.image)):])
    assert told[0] == told[1]
    assert told[0][-4:] == ["--", "wb-case", "case", "--seed=3"]
    assert {"mem=512M", "time-travel=inf-cpu", "root=/dev/ram0", "console=tty0"} <= set(told[0])


def test_no_room_for_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uml, "MEMORY_DIRS", (str(tmp_path),))
    monkeypatch.delenv("TMPDIR", raising=False)
    assert uml.memory_dir(1) == str(tmp_path)
    with pytest.raises(WbError, match="set TMPDIR"):
        uml.memory_dir(1 << 40)


def test_guests_spread_over_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {2, 5})
    with uml.one_cpu() as a, uml.one_cpu() as b, uml.one_cpu() as c:
        assert {a[2], b[2]} == {"2", "5"}
        assert c[2] in "25"
    assert not any(uml._guests.values())


def test_hz_comes_first() -> None:
    top = kconfig.with_hz('# c\nmainmenu "Linux/$(ARCH)"\n\nsource "init/Kconfig"\n')
    assert top == '# c\nmainmenu "Linux/$(ARCH)"\n\nconfig HZ\n\tint\n\tdefault 1000\n\nsource "init/Kconfig"\n'


def test_options_that_do_not_apply_go() -> None:
    assert kconfig.merge(["CONFIG_PCI=y\nCONFIG_A=y\n", "# CONFIG_PCI does not apply\n# CONFIG_A is not set\n"]) \
        == "# CONFIG_A is not set\n"
    assert "CONFIG_SMP" not in kconfig.fragments(kconfig.UML)
    assert "CONFIG_KASAN=y" in kconfig.fragments(kconfig.UML_DEBUG)


def test_what_runs_in_the_lane() -> None:
    def job(words: str) -> suites.Job:
        cell = suites.cell(words)
        return suites.Job(cell.case, cell.axes, 1, "stock")

    assert suites.in_lane("exact", job("read-latency")) == job("read-latency")
    assert suites.in_lane("fast", job("read-latency")) == job("read-latency reader=open")
    # Nothing to be due: as fast as they can.
    assert suites.in_lane("fast", job("read-latency rate=0")) == job("read-latency rate=0")
    assert suites.in_lane("fast", job("wbt-cost")) is None
    assert [c for c in ax.CASES.values() if c.not_fast]
    assert any("fast lane" in line for line in suites.left_out([suites.cell("wbt-cost")], ["stock"], "fast"))
