# SPDX-License-Identifier: GPL-2.0
"""Kernels: configuration checked, products cached by content, nothing built twice.

The "Linux" here has a Makefile of a few lines that counts how often it is run.
"""

import tarfile
from pathlib import Path

import pytest
from fake_checkout import Checkout

from wblib.kernel import build as kernels
from wblib.kernel import kconfig, sources
from wbtop.errors import WbError

MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = 117
allnoconfig:
	cp $(KCONFIG_ALLCONFIG) $(O)/.config
	if [ -e no-option ]; then sed -i /CONFIG_XFS_FS=/d $(O)/.config; fi
bzImage:
	echo built >> $(O)/../../../count
	test ! -e mm/broken.c || { echo "../mm/broken.c:3:1: error: it is broken"; exit 1; }
	mkdir -p $(O)/arch/x86/boot $(O)/include/config
	if [ -e late.c ]; then mv late.c mm/page-writeback.c; fi
	cat mm/page-writeback.c > $(O)/arch/x86/boot/bzImage
	echo 6.12.117 > $(O)/include/config/kernel.release
	test -z "$(K)$(LOCALVERSION)" && test "$$KBUILD_BUILD_USER" = wb
modules:
	touch $(O)/Module.symvers $(O)/System.map
"""
SELFTESTS = """\
install:
	mkdir -p $(INSTALL_PATH)/writeback/test_modules
	cp writeback/case.sh $(INSTALL_PATH)/writeback
	test ! -e writeback/test_modules/stale.o
	test -e $(KDIR)/Module.symvers
	cp writeback/test_modules/wbdisk.c $(INSTALL_PATH)/writeback/test_modules/wbdisk.ko
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    (made.linux / "Makefile").write_text(MAKEFILE)
    (made.linux / "tools/testing/selftests").mkdir(parents=True)
    (made.linux / "tools/testing/selftests/Makefile").write_text(SELFTESTS)
    mine = made.top / "tools/testing/selftests/writeback"
    (mine / "test_modules").mkdir(parents=True)
    (mine / "case.sh").write_text("#!/bin/bash\n")
    (mine / "test_modules/wbdisk.c").write_text("module\n")
    return made


def built(checkout: Checkout, *args: str, ok: bool = True) -> dict[str, str]:
    """wb build as a dictionary of what it printed."""
    return dict(line.split(None, 1) for line in checkout.wb("build", *args, ok=ok).splitlines())


def builds(checkout: Checkout) -> int:
    count = checkout.top / "build/count"
    return len(count.read_text().splitlines()) if count.exists() else 0


def add_patch(checkout: Checkout, text: str = "patched\n") -> None:
    checkout.wb("series", "tree")
    checkout.commit("mm: patch", {"mm/page-writeback.c": text})
    checkout.wb("series", "export")


def test_nothing_builds_twice(checkout: Checkout) -> None:
    first = built(checkout)
    assert built(checkout) == first
    assert builds(checkout) == 1
    assert Path(first["kernel"]).read_bytes()
    assert (Path(first["selftests"]) / "writeback/case.sh").exists()


def test_empty_series_is_the_stock_kernel(checkout: Checkout) -> None:
    stock = built(checkout)
    checkout.wb("series", "tree")
    assert built(checkout, "--kernel", "patched") == stock
    assert built(checkout, "--kernel", "tree") == stock
    assert builds(checkout) == 1


def test_patched_and_tree_with_the_same_content_build_once(checkout: Checkout) -> None:
    stock = built(checkout)
    add_patch(checkout)
    patched = built(checkout, "--kernel", "patched")
    assert patched["key"] != stock["key"]
    assert Path(patched["kernel"]).read_text() == "patched\n"
    assert built(checkout, "--kernel", "tree")["kernel"] == patched["kernel"]
    assert builds(checkout) == 2
    (checkout.tree / "mm/page-writeback.c").write_text("not committed\n")
    assert Path(built(checkout, "--kernel", "tree")["kernel"]).read_text() == "not committed\n"
    assert built(checkout) == stock
    assert checkout.git("status", "--porcelain").split() == ["M", "mm/page-writeback.c"], "a build is no work"


def test_a_tree_that_changes_while_it_is_built_is_not_kept(checkout: Checkout) -> None:
    checkout.wb("series", "tree")
    (checkout.tree / "late.c").write_text("edited during the build\n")
    assert "the tree changed while it was built: run it again" in checkout.wb("build", "--kernel", "tree", ok=False)
    assert not (checkout.top / "build/kernels").exists()
    assert Path(built(checkout, "--kernel", "tree")["kernel"]).read_text() == "edited during the build\n"


def test_message_of_a_patch_is_no_new_kernel(checkout: Checkout) -> None:
    add_patch(checkout)
    before = built(checkout, "--kernel", "patched")
    patch = next((checkout.top / "mm").glob("*.patch"))
    patch.write_text(patch.read_text().replace("because the body", "since the body"))
    assert built(checkout, "--kernel", "patched") == before


def test_changed_selftest_rebuilds_only_the_modules(checkout: Checkout) -> None:
    first = built(checkout)
    mine = checkout.top / "tools/testing/selftests/writeback"
    (mine / "test_modules/stale.o").write_text("left by a build in the checkout")
    assert built(checkout) == first
    (mine / "case.sh").write_text("#!/bin/bash\nexit 1\n")
    (mine / "case.sh").chmod(0o755)
    second = built(checkout)
    assert second["selftests"] != first["selftests"]
    assert second["kernel"] == first["kernel"]
    assert builds(checkout) == 1


def test_modules_get_the_objects_of_their_kernel(checkout: Checkout) -> None:
    add_patch(checkout)
    one = built(checkout, "--kernel", "patched")
    add_patch(checkout, "more\n")
    built(checkout, "--kernel", "patched")
    checkout.wb("series", "tree")
    checkout.git("reset", "-q", "--hard", "HEAD~1")
    checkout.wb("series", "export")
    (checkout.top / "tools/testing/selftests/writeback/case.sh").write_text("#!/bin/bash\nexit 1\n")
    before = builds(checkout)
    again = built(checkout, "--kernel", "patched")
    assert again["kernel"] == one["kernel"]
    assert builds(checkout) == before + 1, "the object directory held the other kernel"


def test_lost_option_is_named_and_leaves_no_kernel(checkout: Checkout) -> None:
    (checkout.linux / "no-option").touch()
    error = checkout.wb("build", ok=False)
    assert "options without effect: CONFIG_XFS_FS=y" in error
    assert not (checkout.top / "build/kernels").exists()


def test_failed_build_names_the_log_and_is_tried_again(checkout: Checkout) -> None:
    broken = checkout.linux / "mm/broken.c"
    broken.touch()
    error = checkout.wb("build", ok=False)
    log = Path(error.rpartition("see ")[2])
    assert "echo built" in log.read_text()
    assert "mm/broken.c:3:1: error: it is broken" in error
    assert not (checkout.top / "build/kernels").exists()
    broken.unlink()
    built(checkout)
    assert builds(checkout) == 2


def test_caller_make_variables_do_not_reach_kbuild(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAKEFLAGS", "-n"), ("K", "patched"), ("LOCALVERSION", "-mine"), ("O", "/nowhere")):
        monkeypatch.setenv(name, value)
    built(checkout)
    assert builds(checkout) == 1


def test_tar_holds_the_installed_tests(checkout: Checkout, tmp_path: Path) -> None:
    out = tmp_path / "ksft.tar.xz"
    built(checkout, "--tar", str(out))
    with tarfile.open(out) as tar:
        assert "./writeback/test_modules/wbdisk.ko" in tar.getnames()
    assert list(tmp_path.glob(".*")) == [], "no half-written tarball"


@pytest.mark.parametrize(("args", "says"), [
    (["--kernel", "nonsense"], "unknown kernel 'nonsense': choose from stock, patched, tree, replay"),
    (["--flavour", "nonsense"], "unknown flavour 'nonsense': choose from slim, tracing, debug"),
    (["--kernel", "tree"], "run 'make tree' first"),
    (["-j", "-1"], "at least 1"),
])
def test_bad_arguments(checkout: Checkout, args: list[str], says: str) -> None:
    assert says in checkout.wb("build", *args, ok=False)


def test_later_fragment_wins() -> None:
    text = kconfig.merge(["# a comment about CONFIG_A=y\nCONFIG_A=y\nCONFIG_B=1\n", "# CONFIG_A is not set\n"])
    assert text == "CONFIG_B=1\n# CONFIG_A is not set\n"


def test_options_without_effect(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('CONFIG_A=y\nCONFIG_AB=y\nCONFIG_S=""\n# CONFIG_N is not set\n')
    assert kconfig.lost('CONFIG_A=y\nCONFIG_S=""\n# CONFIG_N is not set\n# CONFIG_ABSENT is not set\n', config) == []
    assert kconfig.lost("CONFIG_A=m\n# CONFIG_AB is not set\nCONFIG_X=y\n", config) == [
        "CONFIG_A=m", "# CONFIG_AB is not set", "CONFIG_X=y"]
    with pytest.raises(WbError, match="CONFIG_X=y"):
        kconfig.check("CONFIG_X=y\n", config)


@pytest.mark.parametrize("flavour", kconfig.FLAVOURS)
def test_fragments_keep_software_crc32c(flavour: str) -> None:
    assert "# CONFIG_CRYPTO_CRC32C_INTEL is not set" in kconfig.fragments(flavour).splitlines()


def test_checkpatchs_cache_is_not_cloned(tmp_path: Path) -> None:
    stock = tmp_path / "stock"
    stock.mkdir()
    (stock / "Makefile").touch()
    (stock / f"{sources.CHECKPATCH_CACHE}date.202611141256").touch()
    sources.clone(stock, tmp_path / "new", link=False)
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["Makefile"]


def test_checkouts_share_a_cache_where_there_is_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CCACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernels.make_env()["CCACHE_DIR"] == str(tmp_path / ".cache/calm-writeback/ccache")
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert kernels.make_env()["CCACHE_DIR"] == str(kernels.BUILD / "ccache")
    monkeypatch.setenv("CCACHE_DIR", "/somewhere")
    assert kernels.make_env()["CCACHE_DIR"] == "/somewhere"
