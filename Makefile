# Every target installs what it misses, once; see tests/installation.py.
PYTHON ?= python3
TOOLCHAIN = $(PYTHON) tests/toolchain.py

.PHONY: help demo test quick bench lint workflows sanity sanity-next unit docs cli release publish integration cores thorough userland cluster upstream kind faults molecule image fuzz mutants clean clean-cache

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo:  ## show the collection at work, on a node that it builds (root)
	@$(TOOLCHAIN) demo

test:  ## integration, lint, unit and image, samples of sanity, cluster, faults and molecule, with a summary at the end
	@$(TOOLCHAIN) integration lint sanity unit cluster faults molecule image oldest_core

quick:  ## what a change touches, its tests first; SINCE=COMMIT for all since then, BUDGET=120 for fewer seconds than 540 (root)
	@SINCE="$(SINCE)" BUDGET="$(BUDGET)" $(TOOLCHAIN) quick

bench:  ## measure what a run costs (root)
	@$(TOOLCHAIN) bench

lint:  ## ansible-lint, changelog, documentation, ruff, licences, workflows, mypy
	@$(TOOLCHAIN) lint

workflows:  ## the workflows by actionlint too: ACTIONLINT=PATH, or on PATH, or its package, which downloads it
	@$(TOOLCHAIN) workflows

sanity:  ## ansible-test sanity on every supported ansible-core
	@$(TOOLCHAIN) all_sanity

sanity-next:  ## the same on the next ansible-core's pre-release, where there is one
	@$(TOOLCHAIN) sanity_next

unit:  ## pure code, on the newest and on the oldest Python
	@$(TOOLCHAIN) unit

docs:  ## the documentation as a site, in .build/docs/html; as root, its pictures too
	@$(TOOLCHAIN) docs

cli:  ## the command without Ansible, as a wheel and as one file, in .build/cli
	@$(TOOLCHAIN) cli

release:  ## every artefact of a release in .build/release, built twice and compared, with checksums and SBOM
	@$(TOOLCHAIN) release

publish:  ## hand the built release to PLACE: galaxy, github, chart, agent, environment or site (the release workflow)
	@PLACE="$(PLACE)" $(TOOLCHAIN) publish

integration:  ## modules against a real kernel (root)
	@$(TOOLCHAIN) integration oldest_core

cores:  ## the roles on the ansible-cores between the oldest and the newest, which make test takes, and on the next (root)
	@$(TOOLCHAIN) cores

thorough:  ## the variants of integration tests that make test leaves out, and make faults runs too (root)
	@$(TOOLCHAIN) thorough

userland:  ## the modules on a node of another Debian release, SYSTEM=sid, across a boot; or in an image of a distribution, SYSTEM=azurelinux-3 (root)
	@$(TOOLCHAIN) userland

cluster:  ## the roles on a real Kubernetes, which is compiled once (root)
	@$(TOOLCHAIN) all_cluster

upstream:  ## beside other projects' programs: KUBE_PROXY=PATH, or KUBE_PROXY_VERSION=v1.37.2 to download; KUBE_PROXY_MODES=nftables for one mode; AZURE_VNET=PATH; AWS_CNI_HOST=PATH (root)
	@$(TOOLCHAIN) upstream

kind:  ## the DaemonSet on a cluster of kind: PROXY=iptables, nftables, ipvs, or none for Cilium; KIND_NODE=IMAGE
	@$(TOOLCHAIN) kind

faults:  ## kill, starve and mislead every module at every point of its runs, and table what held (root)
	@$(TOOLCHAIN) all_faults

molecule:  ## each role on a node that boots, from nothing to absent (root)
	@$(TOOLCHAIN) all_molecule

image:  ## build a disk image by Packer, and boot it as a VM (root)
	@$(TOOLCHAIN) image

fuzz:  ## property tests and hostile input with random seeds, MINUTES=5 of them (root: those on a real kernel too)
	@$(TOOLCHAIN) fuzz

mutants:  ## change the pure code in small ways, and see that a unit test notices; FILES="rule route" for some
	@$(TOOLCHAIN) mutants

clean:  ## remove what was built in this checkout; the cache in ~/.cache/kubenode-datapath stays
	@$(TOOLCHAIN) clean

clean-cache:  ## remove the cache: nodes' roots, disks, virtual environments, compiled programs, and mounts that were left in it
	@$(TOOLCHAIN) clean_cache
