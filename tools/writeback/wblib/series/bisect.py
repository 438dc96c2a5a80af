# SPDX-License-Identifier: GPL-2.0
"""Every prefix of the series builds its directories with W=1 and sparse, without new warnings.

A prefix that passed is remembered, as BUILD/bisect/KEY.json, with its warnings: a rerun goes on behind it.
"""

import json
import re
import shutil
from pathlib import Path

from wblib.base import fs
from wblib.base.paths import BUILD
from wblib.base.proc import cpus, run, say, sha256_text
from wblib.kernel import build as kernels
from wblib.kernel import kconfig, patchqueue, sources, upstream
from wbtop.errors import WbError

PASSED = BUILD / "bisect"
_WARNING = re.compile(r"^(?:\.\./)?([\w./+-]+\.[chS]):\d+(?::\d+)?: ((?:warning|error): .*)$", re.M)


def targets(names: list[str]) -> list[str]:
    """The kbuild directories to build for touched files; a header may break any user of it."""
    dirs = {f"{Path(n).parent}/" for n in names if n.endswith((".c", ".h", ".S")) and not n.startswith("include/")}
    if any(n.startswith("include/") for n in names):
        dirs |= {"mm/", "fs/", "block/"}
    # kbuild descends: a directory below another one is built with it.
    return sorted(d for d in dirs if not any(d != other and d.startswith(other) for other in dirs))


def warnings(log: str) -> set[tuple[str, str]]:
    """(file, message) of each compiler, kernel-doc and sparse message; line numbers shift and are left out."""
    return {(m.group(1), m.group(2)) for m in _WARNING.finditer(log)}


def sparse(tree: Path) -> str:
    """The command that checks a source of ``tree``; empty without a sparse that can.

    Headers of 7.x use __typeof_unqual__, which sparse 0.6.4 does not know; kbuild asks checker-valid.sh
    and checks nothing then.  With typeof, qualifiers stay, in the base as in the series.
    """
    valid = tree / "scripts/checker-valid.sh"
    for command in ("sparse", "sparse -D__typeof_unqual__=__typeof__") if shutil.which("sparse") else ():
        if not valid.is_file() or run(["sh", valid, *command.split()]).stdout.strip() == "1":
            return command
    return ""


def checker(names: list[str], command: str) -> str:
    """A script for kbuild's CHECK: ``command`` for touched files only, half of the time goes to others otherwise."""
    sources_of = "|".join(n for n in names if n.endswith(".c"))
    return f"""#!/bin/sh
for source; do :; done
case ${{source#../}} in
{sources_of or "''"}) exec {command} "$@" ;;
esac
"""


def _write_checker(names: list[str], command: str) -> Path:
    path = BUILD / "log" / "bisect-sparse"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(checker(names, command))
    path.chmod(0o755)
    return path


def keys(files: list[Path], ident: str, what: str) -> list[str]:
    """The key of each prefix, the base's first: a hash of the base's ident, what it is checked with, and its diffs.

    A prefix passes only behind others that pass, so their keys are in its own.  Another message changes no tree.
    """
    chain = [sha256_text(f"{ident} {what}")]
    for path in files:
        chain.append(sha256_text(f"{chain[-1]} {patchqueue.diff(path)}"))
    return chain


def check(jobs: int = 0) -> int:
    """Build each prefix that did not pass before; returns the number of patches.

    WbError names the first patch that fails or warns.
    """
    line = upstream.default_line()
    tree = upstream.SRC / upstream.in_line("bisect", line)
    files = patchqueue.patches(line=line)
    touched = sorted({n for f in files for n in patchqueue.touched(f)})
    dirs = targets(touched)
    if not dirs:
        return 0
    flags = [f"-j{jobs or cpus()}", "W=1"]
    origin = upstream.locate()
    stock = upstream.stock(origin)
    if command := sparse(stock):
        flags += ["C=1", f"CHECK={_write_checker(touched, command)}"]
    else:
        say("notice: there is no sparse that reads this tree, checking with W=1 only")
    how = [kernels.compiler(), command and command + run(["sparse", "--version"]).stdout,
           kconfig.fragments("slim", line=line), kconfig.fragments("slim", series=True, line=line), *dirs, *touched]
    chain = keys(files, origin.ident, "\n".join(how))
    with fs.lock("bisect"):
        known: set[tuple[str, str]] = set()
        if before := sum(_passed(key) is not None for key in chain[1:]):
            say(f"{before} of {len(files)} passed before")
        for count, key in enumerate(chain):
            found = _passed(key)
            if found is None:
                sources.sync_patched(origin, stock, tree, files[:count])
                found = _warnings_of(tree, count, files, dirs, flags, known)
                fs.write_atomic(PASSED / f"{key}.json", json.dumps(sorted(found)))
                _unsure(tree).unlink()
            known |= found
    return len(files)


def _passed(key: str) -> set[tuple[str, str]] | None:
    """The warnings of a prefix that passed; None if it did not, or if that is not readable."""
    try:
        return {(name, message) for name, message in json.loads((PASSED / f"{key}.json").read_text())}
    except (OSError, ValueError, TypeError):
        return None


def _unsure(tree: Path) -> Path:
    """Exists while out-slim has objects of a prefix that did not pass: make would not show their warnings again."""
    return tree / "out-slim" / "wb-unsure"


def _warnings_of(tree: Path, count: int, files: list[Path], dirs: list[str], flags: list[str],
                 known: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Build the first ``count`` patches in ``tree``; WbError for a warning, not ``known``, in a file they touch."""
    name = files[count - 1].name if count else "base"
    unsure = _unsure(tree)
    if unsure.exists():
        fs.remove(unsure.parent)
    unsure.parent.mkdir(exist_ok=True)
    unsure.touch()
    log = BUILD / "log" / f"bisect-{count:04}.log"
    log.unlink(missing_ok=True)
    _build(tree, log, dirs, flags, count, f"building {name} ({count}/{len(files)})")
    found = warnings(log.read_text(errors="replace"))
    mine = {n for f in files[:count] for n in patchqueue.touched(f)}
    if new := sorted(w for w in found - known if w[0] in mine):
        raise WbError(f"{name}: new warning in {new[0][0]}: {new[0][1]}"
                      + (f" and {len(new) - 1} more" if len(new) > 1 else "") + f": see {log}")
    return found


def _build(tree: Path, log: Path, dirs: list[str], flags: list[str], count: int, what: str) -> None:
    out = tree / "out-slim"
    fragments = out / "wb-fragments.config"
    fragments.write_text(kconfig.fragments("slim", series=count > 0, line=upstream.default_line()))
    # Not kconfig.check: an option of the series exists only from its patch on.
    run(kernels.make(tree, out, "-s", "allnoconfig"), env={**kernels.make_env(), "KCONFIG_ALLCONFIG": str(fragments)},
        log=log, what="configuring")
    present = [d for d in dirs if (tree / d).is_dir()]
    kernels.compile_in(kernels.make(tree, out, *flags, *present), log, what)
