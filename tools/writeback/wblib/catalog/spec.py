# SPDX-License-Identifier: GPL-2.0
"""One run, as it is asked for: what runner, results, comparison and report know a run by."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from . import axes as ax
from .suites import Job

LANES = ("exact", "fast", "functional")
# QEMU's model in the exact lane.  Without ERMS the kernel copies 8 bytes an instruction, as fast as a real machine;
# `rep movsb` is an instruction per byte, and dd's copy of a folio then takes a millisecond that nothing can preempt.
CPU = "max,erms=off"
# The functional lane's disks, and where they are in the guest.
DEVICES = {"ahci": "/dev/sda", "nvme": "/dev/nvme0n1"}


@dataclass(frozen=True)
class RunSpec(Job):
    """A job and how it is run.

    lane: one of LANES, of a result also "local".  on: the functional lane's device, else "".
    flavour: the kernel's.  cpu: QEMU's model in the exact lane.
    """

    lane: str = "exact"
    on: str = ""
    flavour: str = "slim"
    trace: bool = False
    cpu: str = CPU

    @classmethod
    def of(cls, job: Job, *, lane: str = "exact", on: str = "", flavour: str = "", trace: bool = False,
           cpu: str = CPU) -> Self:
        """``job`` with what follows from it: the kernel that its options need, the lane's first device."""
        flavour = "tracing" if trace else implied(job.axes) if flavour in ("", "slim") else flavour
        return cls(job.case, job.axes, job.seed, job.kernel, lane,
                   (on or next(iter(DEVICES))) if lane == "functional" else "", flavour, trace, cpu)

    @property
    def told_flavour(self) -> str:
        """The flavour, where it is another than what the axes imply; else empty."""
        return "" if self.flavour == implied(self.axes) else self.flavour

    @property
    def told_cpu(self) -> str:
        """The CPU model, where it is not the default one; else empty."""
        return "" if self.cpu == CPU else self.cpu

    @property
    def folder(self) -> str:
        """The name of the directory of its seeds; what is not the default is kept apart."""
        return "".join([f"{self.on or self.lane}-" if self.lane != "exact" else "", ax.slug(self.case, self.axes),
                        "-trace" if self.trace else "", f"-cpu-{ax.word(self.cpu)}" if self.told_cpu else ""])

    @property
    def meta(self) -> dict[str, Any]:
        """How it is run, for the result: the lane, and what is not the default."""
        told = {"flavour": self.told_flavour, "trace": self.trace, "cpu": self.told_cpu, "on": self.on}
        return {"lane": self.lane, **{k: v for k, v in told.items() if v}}

    def command(self, *more: str, program: str = "wb") -> str:
        """The ``wb run`` that runs it, the seed last: the same kernel, guest and seed give the same result."""
        words = [program, "run", self.case, *(["--dir", "DIRECTORY"] if self.lane == "local" else
                                              ["--kernel", self.kernel]), *ax.options(self.case, self.axes)]
        told = {"lane": self.lane if self.lane in LANES[1:] else "", "on": self.on, "cpu": self.told_cpu,
                "flavour": "" if self.trace else self.told_flavour}
        words += [word for name, value in told.items() if value for word in (f"--{name}", value)]
        return shlex.join([*words, *(["--trace"] if self.trace else []), *more, "--seed", str(self.seed)])


def implied(axes: Mapping[str, str]) -> str:
    """The flavour of a kernel that has what ``axes`` name."""
    return "btrfs" if axes.get("fs") == "btrfs" else "slim"


def specs(jobs: Iterable[Job], **how: Any) -> list[RunSpec]:
    """``jobs``, each run as ``how`` says; see RunSpec.of."""
    return [RunSpec.of(job, **how) for job in jobs]
