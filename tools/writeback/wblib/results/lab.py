# SPDX-License-Identifier: GPL-2.0
"""``wb lab``: what a test lab needs to run the suite, and its results in the lab's form."""

import argparse
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from wblib.base import venv
from wblib.base.paths import TOOLS
from wblib.base.proc import say, sha256_file
from wblib.kernel import build as kernels
from wbtop.errors import WbError

from . import kcidb, store

TEMPLATE = TOOLS / "lab" / "lava-qemu.yaml"
HOURS = 6  # all cases, without KVM
EXAMPLES = """\
examples:
  wb lab pack out --url https://lab.example/wb --rootfs https://lab.example/debian.ext4
      bzImage, config, kselftest.tar.xz, SHA256SUMS and lava-qemu.yaml into out/;
      put out/ at the URL, then: lavacli jobs submit out/lava-qemu.yaml
  wb lab pack out --kernel patched --url ... --rootfs ... --test read-latency --test wbdisk
  wb lab kcidb results/stock-1a2b3c4d -o report.json --origin my_lab
  wb lab kcidb machine1/results machine2/results | kcidb-submit ..."""


def register(sub: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``wb lab`` and its commands."""
    raw = argparse.RawDescriptionHelpFormatter
    p = sub.add_parser("lab", help="for test labs: tarball, LAVA job, KCIDB report", epilog=EXAMPLES,
                       formatter_class=raw)
    verbs = p.add_subparsers(metavar="WHAT", required=True)
    add = verbs.add_parser("pack", help="kernel, kselftest tarball and LAVA job in one directory", epilog=EXAMPLES,
                           formatter_class=raw)
    add.add_argument("dir", metavar="DIR", type=Path, help="where to write; made if it is not there")
    add.add_argument("--kernel", default="stock", help="stock, patched or tree (default stock)")
    add.add_argument("--url", required=True, help="where the lab will find DIR")
    add.add_argument("--rootfs", required=True, metavar="URL", help="the lab's Debian root file system, an ext4 image")
    add.add_argument("--test", action="append", metavar="CASE", help="only this case (repeatable; default: all)")
    add.add_argument("--hours", type=int, default=HOURS, metavar="H",
                     help=f"limit of the job (1..999, default {HOURS})")
    add.set_defaults(func=pack)
    add = verbs.add_parser("kcidb", help="results as a KCIDB v5 report", epilog=EXAMPLES, formatter_class=raw)
    add.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="directories or JSON files of wb")
    add.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")
    add.add_argument("--origin", default="calm_writeback", help="the lab's name at KernelCI (default calm_writeback)")
    add.set_defaults(func=export)


def job(template: str, words: Mapping[str, str]) -> str:
    """``template`` with @WORD@ replaced; WbError for one that is not known, or that would change the YAML."""
    def value(match: re.Match[str]) -> str:
        word = match[1]
        if word not in words:
            raise WbError(f"{TEMPLATE.name}: nothing to put for @{word}@")
        if not re.fullmatch(r"[^\s'\"{}#]*( [^\s'\"{}#]+)*", words[word]) or words[word].startswith("@"):
            raise WbError(f"'{words[word]}' cannot stand in a LAVA job: no quotes, braces or white space", 2)
        return words[word]

    # Comments speak of the words, they have none.
    return "\n".join(line if line.lstrip().startswith("#") else re.sub(r"@([A-Z_]+)@", value, line)
                     for line in template.split("\n"))


def selection(cases: "list[str] | None", listed: str) -> str:
    """Options of run_kselftest.sh for ``cases``. listed: kselftest-list.txt of the tarball."""
    if not cases:
        return "-c writeback"
    there = [line.split(":", 1)[1] for line in listed.split() if line.startswith("writeback:")]
    by_name = {Path(t).stem: t for t in there}
    for case in cases:
        if case not in by_name:
            raise WbError(f"--test {case}: the tarball has {', '.join(by_name)}", 2)
    return " ".join(f"-t writeback:{by_name[case]}" for case in cases)


def pack(args: argparse.Namespace) -> int:
    """``wb lab pack``."""
    if not 1 <= args.hours <= 999:
        raise WbError(f"--hours {args.hours}: must be 1..999", 2)
    for option, url in (("--url", args.url), ("--rootfs", args.rootfs)):
        if not re.fullmatch(r"(https?|file)://[^\s'\"{}#]+", url):
            raise WbError(f"{option} {url}: must be an http, https or file URL", 2)
    built = kernels.build(args.kernel)
    chosen = selection(args.test, (kernels.modules(built) / "kselftest-list.txt").read_text())
    args.dir.mkdir(parents=True, exist_ok=True)
    say(f"packing the kselftests of the {args.kernel} kernel")
    kernels.gen_tar(built, args.dir / "kselftest.tar.xz")
    for source, name in ((built.image, "bzImage"), (built.config, "config")):
        shutil.copy(source, args.dir / name)
    sums = {name: sha256_file(args.dir / name) for name in ("bzImage", "config", "kselftest.tar.xz")}
    text = job(TEMPLATE.read_text(), {
        "KERNEL": args.kernel, "RELEASE": built.release, "PATCHSET": built.patchset_hash, "HOURS": str(args.hours),
        "URL": args.url.rstrip("/"), "ROOTFS": args.rootfs, "SELECTION": chosen,
        "SHA_BZIMAGE": sums["bzImage"], "SHA_KSELFTEST": sums["kselftest.tar.xz"],
    })
    store.write_file(args.dir / TEMPLATE.name, text.encode())
    store.write_file(args.dir / "SHA256SUMS", "".join(f"{s}  {n}\n" for n, s in sums.items()).encode())
    print(f"{args.dir}: {', '.join(sums)}, SHA256SUMS, {TEMPLATE.name}")
    return 0


def export(args: argparse.Namespace) -> int:
    """``wb lab kcidb``."""
    if not kcidb.ORIGIN.fullmatch(args.origin):
        raise WbError(f"--origin '{args.origin}': lower-case letters, digits and _ only", 2)
    by_schema = venv.has("kcidb_io")
    found = [r for place in args.results for r in store.read(place)]
    if not found:
        raise WbError(f"no finished results below {', '.join(map(str, args.results))}: run some with 'wb bench'")
    data = kcidb.report(found, args.origin)
    bad = kcidb.problems(data)
    if bad:
        raise WbError(f"the report is not valid: {bad[0]}" + (f", and {len(bad) - 1} more" if len(bad) > 1 else ""))
    text = json.dumps(data, indent=1) + "\n"
    if args.output:
        store.write_file(args.output, text.encode())
    else:
        print(text, end="")
    checked = "valid by kcidb-io" if by_schema else "kcidb-io is not installed: only references were checked"
    say(f"{len(found)} runs, {len(data['tests'])} tests, {checked}")
    return 0
