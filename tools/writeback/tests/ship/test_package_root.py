# SPDX-License-Identifier: GPL-2.0
"""The package and the single file in a clean root: installed by dpkg, used, removed, with nothing of the checkout.

The root has the files and dpkg's records of this machine's own packages, those that
python3 and dpkg depend on and no others, so that it needs no network and no minute.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wblib.ship import package

# What is essential in every Debian, and what our package depends on.
WANTED = ("base-files", "base-passwd", "bash", "coreutils", "dash", "diffutils", "dpkg", "findutils", "grep", "gzip",
          "libc-bin", "python3", "sed", "tar")
BIND = 'mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys"'


def installed() -> dict[str, dict[str, str]]:
    """dpkg's records of this machine: package -> field -> value, and the record itself as ''."""
    found = {}
    for text in Path("/var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][A-Za-z-]*): *(.*(?:\n .*)*)", text, re.MULTILINE))
        if fields.get("Status") == "install ok installed":
            found[fields["Package"]] = {**fields, "": text.strip()}
    return found


def closure(records: dict[str, dict[str, str]]) -> list[str]:
    """WANTED and what they depend on, of what is installed."""
    found: list[str] = []
    left = list(WANTED)
    while left:
        name = left.pop()
        if name in found or name not in records:
            continue
        found.append(name)
        for key in ("Depends", "Pre-Depends"):
            depends = re.split(r"[,|]", records[name].get(key, ""))
            left += [re.split(r"[ :(]", d.strip())[0] for d in depends if d.strip()]
    return sorted(found)


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("chroot and dpkg -i need root")
    if not shutil.which("dpkg-deb") or not Path("/var/lib/dpkg/status").exists():
        pytest.skip("this machine is not a Debian: there is nothing to make a clean root of")
    records = installed()
    if "python3" not in records:
        pytest.skip("python3 is not installed as a package here")
    root = tmp_path_factory.mktemp("clean") / "root"
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("proc", "sys", "tmp", "root", "dev", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log", "etc"):
        (root / name).mkdir(parents=True, exist_ok=True)
    names = closure(records)
    for name in names:
        arch = records[name]["Architecture"]
        base = next(b for b in (f"{name}:{arch}", name) if Path(f"/var/lib/dpkg/info/{b}.list").exists())
        for listed in Path(f"/var/lib/dpkg/info/{base}.list").read_text().splitlines():
            put(root, listed)
        for record in Path("/var/lib/dpkg/info").glob(f"{base}.*"):
            shutil.copy2(record, root / "var/lib/dpkg/info")
    (root / "var/lib/dpkg/status").write_text("".join(records[n][""] + "\n\n" for n in names))
    (root / "var/lib/dpkg/available").touch()
    for name in ("arch", "diversions", "statoverride"):
        (root / f"var/lib/dpkg/{name}").touch()
    for name in ("etc/passwd", "etc/group", "etc/ld.so.cache"):
        shutil.copy2(f"/{name}", root / name)
    for name in ("sh", "awk"):
        if Path(f"/usr/bin/{name}").exists() and not (root / "usr/bin" / name).exists():
            shutil.copy2(f"/usr/bin/{name}", root / "usr/bin" / name)
    os.mknod(root / "dev/null", 0o20666, os.makedev(1, 3))
    inside(root, "dpkg", "--configure", "--pending")
    yield root
    shutil.rmtree(root, ignore_errors=True)


def put(root: Path, name: str) -> None:
    """One file of a package into the root; what the machine's owner has removed (manuals) is not there."""
    source, target = Path(name), root / name.lstrip("/")
    if "/doc/" in name or "/locale/" in name or "/man/" in name or not (source.exists() or source.is_symlink()):
        return
    if source.is_dir() and not source.is_symlink():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists() and not target.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)


def inside(root: Path, *words: str, mounts: bool = False, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ``words`` in the root; mounts: with /proc and /sys of this machine, in a mount namespace of its own."""
    argv = ["chroot", str(root), *words]
    if mounts:
        argv = ["unshare", "--mount", "sh", "-c", f'{BIND} && exec chroot "$0" "$@"', str(root), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", timeout=300,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"})
    assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
    return done


def may_mount(root: Path) -> bool:
    """Most containers forbid it."""
    return inside(root, "true", mounts=True, check=False).returncode == 0


def files(root: Path) -> set[str]:
    """All files but dpkg's own."""
    return {str(p.relative_to(root)) for p in root.rglob("*")
            if not str(p.relative_to(root)).startswith(("var/lib/dpkg", "var/log", "tmp", "root"))
            and "__pycache__" not in p.parts}


@pytest.fixture(name="built", scope="module")
def _built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    single, deb = package.build(tmp_path_factory.mktemp("built"))
    return Path(shutil.copy2(single, root / "root/wb")), Path(shutil.copy2(deb, root / "tmp"))


def test_in_a_clean_root(root: Path, built: tuple[Path, Path]) -> None:
    single, deb = built
    before = files(root)
    assert not (root / "usr/bin/wb").exists()
    inside(root, "dpkg", "--install", f"/tmp/{deb.name}")
    assert inside(root, "dpkg", "--audit").stdout == ""
    assert inside(root, "dpkg", "--verify", package.PACKAGE).stdout == ""
    for wb in ("/usr/bin/wb", "/root/wb"):
        assert inside(root, wb, "--version").stdout == f"wb {package.VERSION}\n"
        # Every module, none of them the rig's or of somebody's site-packages.
        imported = inside(root, "python3", "-X", "importtime", wb, "--help").stderr
        assert "wbtop.field.load" in imported
        assert "wblib" not in imported
        assert inside(root, wb, "watch", "--interval", "0", check=False).returncode == 2
    complete = ("source /usr/share/bash-completion/completions/wb; COMP_WORDS=(wb watch --op); COMP_CWORD=2; _wb; "
                "echo \"${COMPREPLY[@]}\"")
    assert inside(root, "bash", "-c", complete).stdout == "--openmetrics\n"
    assert ".SH WB WATCH" in inside(root, "gzip", "-dc", "/usr/share/man/man8/wb.8.gz").stdout
    if shutil.which("man"):
        shown = subprocess.run(["man", "--warnings", "-l", str(root / "usr/share/man/man8/wb.8.gz")], check=True,
                               capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "MANWIDTH": "100",
                                                                    "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
        assert "wb watch --once --json" in re.sub("\N{HYPHEN}|\\\\-", "-", shown.stdout)
        assert shown.stderr == ""
    inside(root, "dpkg", "--purge", package.PACKAGE)
    assert files(root) == before
    assert single.exists()


def test_each_command_on_this_machine_from_there(root: Path, built: tuple[Path, Path]) -> None:
    if not may_mount(root):
        pytest.skip("mounting is forbidden here: watch, tune and field need /proc and /sys in the root")
    inside(root, "dpkg", "--install", f"/tmp/{built[1].name}")
    for wb in ("/usr/bin/wb", "/root/wb"):
        found = json.loads(inside(root, wb, "watch", "--once", "--json", "--interval", "0.3", mounts=True).stdout)
        assert found["diagnosis"]["what"]
        assert found["dirty"]["limit"] > 0
    for seconds in ("3", "60"):
        tuned = inside(root, "wb", "tune", "/root", "--max-mib", "16", "--max-seconds", seconds, "--json", mounts=True,
                       check=False)
        if "raise --max-seconds" not in tuned.stderr:  # as a machine that is busy with other things is told
            break
    if tuned.returncode and "no disk of this machine" in tuned.stderr:
        pytest.skip("the temporary directory is on no disk: tune and field were not tried")
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["measured"]["write_mbps"] > 0
    inside(root, "wb", "field", "/root", "--repeats", "1", "--max-mib", "16", "--max-seconds", "10", "--out",
           "/root/out", mounts=True)
    assert json.loads((root / "root/out/field.json").read_text())["turns"][0]["metrics"]["drain_s"] > 0
    assert (root / "root/out/field.html").read_text().startswith("<!doctype html>")
    inside(root, "dpkg", "--purge", package.PACKAGE)


def test_an_older_python_is_told_so(root: Path, built: tuple[Path, Path]) -> None:
    """dpkg refuses to configure it, and the single file ends with one line."""
    status = root / "var/lib/dpkg/status"
    text = status.read_text()
    try:
        status.write_text(re.sub(r"(Package: python3\n(?:.+\n)*?Version: )\S+", r"\g<1>3.8.2-3", text))
        done = inside(root, "dpkg", "--install", f"/tmp/{built[1].name}", check=False)
        assert done.returncode != 0
        assert "python3 (>= 3.9)" in done.stderr
        inside(root, "dpkg", "--purge", package.PACKAGE)
    finally:
        status.write_text(text)
