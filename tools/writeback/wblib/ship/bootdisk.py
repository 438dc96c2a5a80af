# SPDX-License-Identifier: GPL-2.0
"""A Debian on a disk image, with the packages installed and GRUB on it: no mount, no loop device.

mmdebstrap makes the base once (kept in build/boot); the packages are installed
in a chroot; sfdisk, mtools and mke2fs -d write the image.
"""

import functools
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD, GUEST
from wblib.base.proc import need, run, say, sha256_text
from wblib.guest import qemu
from wbtop.errors import WbError

STORE = BUILD / "boot"
# Raise when the way of making the base changes what comes out.
RECIPE = 1
MIB = 1 << 20
# Measured: 0.8 GiB of base, extracted once more, and the image.
NEED_GIB = 4.0
DISK_MIB, ESP_MIB = 3072, 64
ROOT_UUID, ROOT_PARTUUID = "3c1ed6a4-9b0f-4c59-9a47-5d9b0c7a1e01", "3c1ed6a4-9b0f-4c59-9a47-5d9b0c7a1e02"
ESP_ID = "CA17B007"
# init, bootloader and initrd; then what DKMS builds with; then what the cases call.
PACKAGES = (
    "systemd-sysv,udev,dbus,kmod,initramfs-tools,zstd,grub-efi-amd64,linux-image-cloud-amd64,"
    "dkms,gcc,libc6-dev,make,libelf1,"
    "e2fsprogs,xfsprogs,fio,jq,mawk,procps,dmsetup,util-linux"
)
SECURITY = "http://deb.debian.org/debian-security"
CMDLINE = f"console=ttyS0 panic=-1 kunit.enable=1 {qemu.WALL_CLOCK_ARGS}"
# No network (a slim kernel has no IP), no login; a unit that needs either would only fail.
UNIT = """\
[Unit]
Description=Check of the packaged kernel
After=multi-user.target boot-efi.mount
[Service]
Type=simple
ExecStart=/opt/wb/boot-check
[Install]
WantedBy=multi-user.target
"""
FSTAB = f"UUID={ROOT_UUID} / ext4 defaults 0 1\nUUID={ESP_ID[:4]}-{ESP_ID[4:]} /boot/efi vfat umask=0077 0 1\n"


@dataclass(frozen=True)
class Content:
    """What goes on the disk. names: packages to purge; release: uname -r that must boot; tests: cases to run."""

    headers: Path
    dkms: Path
    image: Path
    names: tuple[str, ...]
    release: str
    selftests: Path
    tests: tuple[str, ...]


def codename() -> str:
    """This machine's Debian release; WbError elsewhere."""
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise WbError("the boot check needs Debian: /etc/os-release has no VERSION_CODENAME")


def _as_root(*argv: str | Path) -> list[str]:
    """``argv`` as root: a file system's owners, and chroot."""
    words = [str(a) for a in argv]
    return words if os.geteuid() == 0 else [need("sudo", "sudo"), "-n", *words]


def mirrors(suite: str) -> list[str]:
    """One-line apt sources of ``suite``: the mirrors this machine uses, and security."""
    asked = run(["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages"], check=False)
    sites = [line.split()[0] for line in asked.stdout.splitlines() if line.split()[1:] == [suite]]
    site = sites[0] if sites else "http://deb.debian.org/debian"
    return [f"deb {site} {suite} main", f"deb {SECURITY} {suite}-security main"]


def base_image() -> Path:
    """The tar of a Debian with its own kernel; made once, about 220 MB of packages."""
    suite = codename()
    key = sha256_text("\n".join([suite, PACKAGES, str(RECIPE)]))[:12]
    tar = STORE / f"debian-{suite}-{key}.tar"
    if tar.exists():
        return tar
    with fs.lock("boot"):
        if not tar.exists():
            _make_base(suite, tar)
    return tar


def _make_base(suite: str, tar: Path) -> None:
    fs.need_space(STORE, NEED_GIB, "a Debian to boot")
    STORE.mkdir(parents=True, exist_ok=True)
    new = tar.with_suffix(".new.tar")
    log = BUILD / "log" / "boot-base.log"
    log.unlink(missing_ok=True)
    say(f"making a Debian {suite} to boot; log: {log}")
    # Translations and manuals are a tenth of it.  No fsync for what is thrown away when interrupted.
    options = ["--variant=minbase", "--mode=root", "--skip=chroot/mount", "--dpkgopt=force-unsafe-io",
               *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale", "info")),
               f"--include={PACKAGES}"]
    run(_as_root(need("mmdebstrap", "mmdebstrap"), *options, suite, new, *mirrors(suite)), log=log,
        what=f"making a Debian {suite}")
    new.replace(tar)


def make(content: Content, image: Path, log: Path) -> str:
    """Write the disk ``image``; returns uname -r of Debian's own kernel, the way back.

    WbError when the packages do not install, or leave GRUB without an entry.
    """
    tar = base_image()
    with fs.lock("boot"):
        return _fill(tar, content, image, log)


def _fill(tar: Path, content: Content, image: Path, log: Path) -> str:
    stage = STORE / "root"
    run(_as_root("rm", "-rf", "--one-file-system", stage), what="removing an earlier stage")
    stage.mkdir(parents=True)
    log.unlink(missing_ok=True)
    try:
        run(_as_root("tar", "-xf", tar, "-C", stage), log=log, what="unpacking Debian")
        fallback = _installed(stage)
        _install(stage, content, log)
        _settle(stage, content, fallback, log)
        _write(stage, image, log)
    finally:
        run(_as_root("rm", "-rf", "--one-file-system", stage), check=False)
    return fallback


def _installed(stage: Path) -> str:
    """uname -r of the only kernel in ``stage``."""
    found = [p.name.removeprefix("vmlinuz-") for p in (stage / "boot").glob("vmlinuz-*")]
    if len(found) != 1:
        raise WbError(f"Debian's kernel in the base image: {found or 'none'}, one was expected: remove {STORE}")
    return found[0]


def _chroot(stage: Path, log: Path, what: str, command: str, **env: str) -> None:
    words = [f"{k}={v}" for k, v in {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root",
                                     "DEBIAN_FRONTEND": "noninteractive", **env}.items()]
    run(_as_root(*(_WITH_PROC if _proc_works(stage) else [need("chroot", "coreutils")]), stage, "/usr/bin/env", "-i",
                 *words, "/bin/sh", "-ec", command), log=log, what=what)


# A mount that only this command sees, gone with it.
_WITH_PROC = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
              'mount -t proc proc "$1/proc" && exec chroot "$@"', "sh"]


@functools.cache
def _proc_works(stage: Path) -> bool:
    """True if /proc may be mounted below ``stage``: dkms needs it, an unprivileged container forbids it."""
    return run(_as_root(*_WITH_PROC, stage, "/bin/true"), check=False).returncode == 0


def _install(stage: Path, content: Content, log: Path) -> None:
    """All in one call, as apt does: unpacked later, the image would bring its modules.dep without DKMS's module."""
    dkms = _proc_works(stage)
    if not dkms:
        say("  no /proc in a chroot here: without DKMS, which cannot work so")
    packages = [content.headers, *([content.dkms] if dkms else []), content.image]
    run(_as_root("mkdir", "-p", stage / "opt/wb/debs"))
    run(_as_root("cp", *packages, stage / "opt/wb/debs"))
    _chroot(stage, log, "installing the packages", "dpkg -i --force-unsafe-io /opt/wb/debs/*.deb; rm -r /opt/wb/debs")
    release = shlex.quote(content.release)
    _chroot(stage, log, f"looking for the initrd of {release}",
            f"test -s /boot/initrd.img-{release}")
    if dkms:
        _chroot(stage, log, f"looking for the DKMS module of {release}",
                f"dkms status; modinfo -k {release} -n wbdisk | grep /{release}/updates/dkms/")


def _settle(stage: Path, content: Content, fallback: str, log: Path) -> None:
    """Everything but the kernel: fstab, the check itself, grub.cfg by update-grub."""
    work = STORE / "settle"
    fs.remove(work)
    (work / "opt/wb").mkdir(parents=True)
    (work / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True)
    (work / "etc/default/grub.d").mkdir(parents=True)
    (work / "boot/efi").mkdir(parents=True)
    (work / "etc/systemd/system.conf.d").mkdir(parents=True)
    # Its 90 s are little for a disk that a busy host emulates.
    (work / "etc/systemd/system.conf.d/wb.conf").write_text(
        "[Manager]\nDefaultTimeoutStartSec=900\nDefaultDeviceTimeoutSec=900\n")
    (work / "etc/fstab").write_text(FSTAB)
    (work / "etc/hostname").write_text("wb\n")
    (work / "etc/default/grub.d/wb.cfg").write_text(
        f'GRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX_DEFAULT=quiet\nGRUB_CMDLINE_LINUX="{CMDLINE}"\n'
        'GRUB_TERMINAL=console\n')
    unit = work / "etc/systemd/system/wb-boot.service"
    unit.write_text(UNIT)
    (unit.parent / "multi-user.target.wants" / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")
    words = {"RELEASE": content.release, "FALLBACK": fallback, "PACKAGES": " ".join(content.names),
             "TESTS": " ".join(content.tests), "DKMS": "yes" if _proc_works(stage) else ""}
    (work / "opt/wb/boot-check.conf").write_text("".join(f"{k}={shlex.quote(v)}\n" for k, v in words.items()))
    for name in ("boot-check", "grub-probe"):
        shutil.copy(GUEST / name, work / "opt/wb" / name)
    shutil.copytree(content.selftests, work / "opt/kselftest")
    # Whatever the umask: daemons that are not root read /etc.
    run(["chmod", "-R", "u+rwX,go+rX", work])
    run(_as_root("cp", "-r", "--preserve=mode,links", "--no-dereference", f"{work}/.", stage))
    fs.remove(work)
    # The real grub-probe comes back at once: update-grub uses it when the packages are purged.
    _chroot(stage, log, "writing grub.cfg",
            "real=/usr/sbin/grub-probe; mv $real $real.real; cp /opt/wb/grub-probe $real; "
            "trap 'mv -f $real.real $real; rm /opt/wb/grub-probe' EXIT; update-grub; "
            f"grep -F -e {shlex.quote(content.release)} /boot/grub/grub.cfg",
            ROOT_UUID=ROOT_UUID, ROOT_PARTUUID=ROOT_PARTUUID)


def _write(stage: Path, image: Path, log: Path) -> None:
    """GPT, EFI system partition with GRUB, root file system."""
    image.unlink(missing_ok=True)
    with image.open("wb") as f:
        f.truncate(DISK_MIB * MIB)
    table = log.with_suffix(".sfdisk")
    table.write_text(f"label: gpt\nstart=1MiB, size={ESP_MIB}MiB, type=uefi\n"
                     f"start={ESP_MIB + 1}MiB, size={DISK_MIB - ESP_MIB - 2}MiB, type=linux, uuid={ROOT_PARTUUID}\n")
    run(["sh", "-c", f"{need('sfdisk', 'fdisk')} -q {shlex.quote(str(image))} < {shlex.quote(str(table))}"], log=log,
        what="partitioning")
    table.unlink()
    esp = STORE / "grub.cfg"
    esp.write_text(f"search.fs_uuid {ROOT_UUID} root\nset prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n")
    at = f"{image}@@{MIB}"
    grub = stage / "usr/lib/grub/x86_64-efi/monolithic/grubx64.efi"
    for argv in (["mformat", "-i", at, "-F", "-N", ESP_ID, "-T", str(ESP_MIB * MIB // 512), "::"],
                 ["mmd", "-i", at, "::EFI", "::EFI/BOOT", "::EFI/debian"],
                 ["mcopy", "-i", at, str(grub), "::EFI/BOOT/BOOTX64.EFI"],
                 ["mcopy", "-i", at, str(esp), "::EFI/debian/grub.cfg"]):
        run([need(argv[0], "mtools"), *argv[1:]], log=log, what="the EFI system partition")
    esp.unlink()
    size = DISK_MIB - ESP_MIB - 2
    run(_as_root(need("mke2fs", "e2fsprogs"), "-q", "-F", "-t", "ext4", "-U", ROOT_UUID, "-d", stage, "-E",
                 f"offset={(ESP_MIB + 1) * MIB},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0", image,
                 f"{size}M"),
        log=log, what="filling the disk")


def command(image: Path, out: Path, kvm: bool) -> list[str]:
    """QEMU's command line of one boot: UEFI firmware, the disk, two serial ports; no -kernel."""
    firmware = Path("/usr/share/OVMF")
    code = next((p for p in (firmware / "OVMF_CODE_4M.fd", firmware / "OVMF_CODE.fd") if p.exists()), None)
    if code is None:
        raise WbError("no UEFI firmware in /usr/share/OVMF: run 'make deps' or install the package ovmf")
    variables = out / "vars.fd"
    shutil.copy(code.with_name(code.name.replace("CODE", "VARS")), variables)
    accel = ["-accel", "kvm", "-cpu", "host"] if kvm else ["-accel", "tcg,thread=multi", "-cpu", "max"]
    return [
        need(qemu.QEMU, "qemu-system-x86"), "-nodefaults", "-no-user-config", "-machine", "q35", *accel,
        "-m", "2048M", "-smp", "2",
        "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={code}",
        "-drive", f"if=pflash,format=raw,unit=1,file={variables}",
        "-drive", f"file={image},if=virtio,format=raw,cache=unsafe",
        "-serial", f"file:{out / 'console.log'}", "-serial", f"file:{out / 'ktap'}",
        "-display", "none", "-monitor", "none", "-no-reboot",
    ]
