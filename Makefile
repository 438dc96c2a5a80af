# SPDX-License-Identifier: GPL-2.0
# calm-writeback: thin names for tools/writeback/wb and install-deps.

WB := tools/writeback/wb
K ?= stock
FLAVOUR ?= slim
CASE ?= read-latency
SUITE ?= reference
SEEDS ?= 3
LANE ?= exact
CONFIG ?= slim
# Where wb and install-deps write, unless the environment says otherwise.
WB_RESULTS ?= results
WB_BUILD ?= build
export BASE

# remove(what is set, our own, variable): elsewhere may be others' files, too.
define remove
@[ "$$(realpath -ms -- '$(1)')" = "$$(realpath -ms -- $(2))" ] || \
	{ echo "make: $(3) is '$(1)', not $(2)/ of this project: remove by hand what is wb's there" >&2; exit 2; }
rm -rf -- $(2)
endef

help: ## this list
	@echo 'make TARGET [K=stock|patched|tree] [FLAVOUR=slim|tracing|debug|kcsan|btrfs] [BASE=6.12|7.3|/path/to/tree-or-tarball]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: deps ## replay the four incidents and print them beside the published figures; LANE=fast: without QEMU
	$(WB) demo --lane $(LANE)

check: deps ## everything that must hold (about an hour fresh on 2 cores); last line: N passed, N failed
	$(WB) check

stress: deps ## power cuts, faults, races, on the patched, debug, stock and KCSAN kernels, resumable; last line as make check
	$(WB) stress

deps: ## install what is missing (apt, and a Python venv in build/venv)
	tools/writeback/install-deps

report: deps ## all results as one static page with pictures: results/report/index.html
	$(WB) report

kernel: deps ## build the kernel K
	$(WB) build --kernel $(K) --flavour $(FLAVOUR)

deb: deps ## Debian packages of base + series (CONFIG=slim|debian-cloud|running|FILE) and of wbdisk
	$(WB) deb --config $(CONFIG) --dkms

shell: deps ## a shell in the kernel K (virtme-ng)
	$(WB) shell --kernel $(K) --flavour $(FLAVOUR)

run: deps ## run CASE on K; axes: see 'wb run --help'
	$(WB) run $(CASE) --kernel $(K)

bench: deps ## run SUITE on K with SEEDS seeds
	$(WB) bench $(SUITE) --kernel $(K) --seeds $(SEEDS)

tree: ## the series as a git tree in build/tree
	$(WB) series tree

export: ## build/tree back to patch files
	$(WB) series export

series: ## the patches in apply order
	$(WB) series list

bisect-check: deps ## build every prefix of the series with W=1
	$(WB) series bisect-check

checkpatch: ## scripts/checkpatch.pl --strict on every patch
	$(WB) series checkpatch

lint: deps ## ShellCheck, ruff, checkpatch, round trip
	$(WB) check --tier lint

unit: deps ## host-side pytest
	$(WB) check --tier unit

clean: ## remove results/; kernels and downloads stay
	$(call remove,$(WB_RESULTS),results,WB_RESULTS)

distclean: clean ## remove everything generated: results/ and build/
	$(call remove,$(WB_BUILD),build,WB_BUILD)

.PHONY: help demo check stress report deps kernel deb shell run bench tree export series bisect-check checkpatch lint unit clean distclean
.DEFAULT_GOAL := help
