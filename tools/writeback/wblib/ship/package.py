# SPDX-License-Identifier: GPL-2.0
"""``wb package``: the user's part as a single file and as a Debian package, without kernel or rig."""

import argparse
import gzip
import io
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

from wblib.base.paths import BUILD, ROOT, TOOLS
from wblib.base.proc import need, run, say
from wbtop import VERSION, cli

from . import package_guest

PACKAGE = "calm-writeback-tools"
# Fixed, so that the same source gives the same bytes.
EPOCH = 1767225600  # 2026-01-01
DATE = (2026, 1, 1, 0, 0, 0)
CONTROL = f"""\
Package: {PACKAGE}
Version: {VERSION}
Section: admin
Priority: optional
Architecture: all
Depends: python3 (>= 3.9)
Maintainer: calm-writeback <root@localhost>
Description: see, measure and cure writeback stalls
 wb watch names the tasks that sleep for dirty memory and the limit that is
 responsible, wb tune measures a disk and recommends settings, wb field proves
 a setting or a kernel on this machine.  Any kernel from 5.10 on.
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: the authors of calm-writeback
License: GPL-2
 On Debian systems, see /usr/share/common-licenses/GPL-2.
"""
EXAMPLES = """\
examples:
  wb package                       build/package/wb and calm-writeback-tools_VERSION_all.deb
  wb package --out /tmp/p          the same into /tmp/p
  sudo apt install ./build/package/calm-writeback-tools_*_all.deb
  apt-get download linux-image-6.1.0-56-cloud-amd64 && wb package --guest linux-image-*.deb
  wb package --guest build/kernels/KEY/bzImage   the same in a kernel of our own
  scp build/package/wb server: && ssh -t server sudo ./wb watch
exit code: 0, 1 when something failed, 2 for wrong usage"""


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb package``."""
    p = sub.add_parser("package", help="watch, tune and field as one file and as a Debian package", epilog=EXAMPLES,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", metavar="DIR", help="where to write (default: build/package)")
    p.add_argument("--guest", metavar="KERNEL.deb", nargs="+", help="also boot each of these kernel packages in QEMU, "
                   "and look whether watch, tune and field do there what they should (3 to 5 min each); several "
                   "packages of one kernel as A.deb,B.deb")
    p.set_defaults(func=package)


def zipapp() -> bytes:
    """The single file: an archive that python3 runs."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        files = {p.relative_to(TOOLS).as_posix(): p.read_bytes() for p in (TOOLS / "wbtop").rglob("*.py")}
        files["__main__.py"] = files["wbtop/__main__.py"]
        for name in sorted(files):
            info = zipfile.ZipInfo(name, DATE)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, files[name])
    return b"#!/usr/bin/env python3\n" + data.getvalue()


def _commands() -> dict[str, argparse.ArgumentParser]:
    top = cli.parser()
    return dict(next(a for a in top._actions if isinstance(a, argparse._SubParsersAction)).choices)


def man_page() -> str:
    """wb(8), from the commands' own help."""
    def quoted(text: str) -> str:
        lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
        return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)

    os.environ["COLUMNS"] = "79"
    parts = [f'.TH WB 8 2026-01-01 "calm-writeback {VERSION}"', ".SH NAME",
             "wb \\- see, measure and cure writeback stalls", ".SH SYNOPSIS", ".B wb", "COMMAND [OPTION...]"]
    for name, command in _commands().items():
        parts += [f".SH WB {name.upper()}", ".nf", quoted(command.format_help()), ".fi"]
    return "\n".join([*parts, ""])


def completion() -> str:
    """Options and directories for bash."""
    cases = []
    for name, command in _commands().items():
        words = " ".join(o for a in command._actions for o in a.option_strings if o.startswith("--")
                         and a.help != argparse.SUPPRESS)
        cases.append(f"\t{name}) words='{words}' ;;")
    names = " ".join(_commands())
    return "\n".join([
        "# bash completion of wb", "_wb()", "{", "\tlocal words=''", "\tcase ${COMP_WORDS[1]} in", *cases, "\tesac",
        "\tif [ \"$COMP_CWORD\" -eq 1 ]; then", f"\t\twords='{names} --help --version'", "\tfi",
        # Without a match readline's own completion of files follows; no <(...), which needs /dev/fd.
        "\tlocal IFS=$' \\t\\n'", "\tCOMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))", "}",
        "complete -o default -F _wb wb", ""])


def build(out: Path) -> tuple[Path, Path]:
    """Write both into ``out``; returns the single file and the package."""
    out.mkdir(parents=True, exist_ok=True)
    single = out / "wb"
    single.write_bytes(zipapp())
    single.chmod(0o755)
    deb = out / f"{PACKAGE}_{VERSION}_all.deb"
    with tempfile.TemporaryDirectory(prefix="wb-package-") as scratch:
        root = Path(scratch) / "root"
        doc, pages = f"usr/share/doc/{PACKAGE}", sorted((ROOT / "Documentation").glob("*.md"))
        for name, data in {
            "DEBIAN/control": CONTROL.encode(), "usr/bin/wb": single.read_bytes().replace(b"/usr/bin/env python3",
                                                                                          b"/usr/bin/python3", 1),
            "usr/share/man/man8/wb.8.gz": gzip.compress(man_page().encode(), mtime=EPOCH),
            "usr/share/bash-completion/completions/wb": completion().encode(),
            f"{doc}/copyright": COPYRIGHT.encode(),
            # All pages, as they refer to each other.
            **{f"{doc}/{page.name}": page.read_bytes() for page in (ROOT / "README", *pages)},
        }.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o755 if name == "usr/bin/wb" else 0o644)
        for path in [root, *(p for p in root.rglob("*") if p.is_dir())]:
            path.chmod(0o755)
        run([need("dpkg-deb", "dpkg"), "--root-owner-group", "-Zxz", "--build", root, deb], what=f"building {deb.name}",
            env={"SOURCE_DATE_EPOCH": str(EPOCH)})
    return single, deb


def package(args: argparse.Namespace) -> int:
    """``wb package``."""
    single, deb = build(Path(args.out) if args.out else BUILD / "package")
    print(single)
    print(deb)
    if shutil.which("apt"):
        say(f"  sudo apt install {deb}")
    return package_guest.main(args.guest, single, VERSION) if args.guest else 0
