#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nftables_package
short_description: Have nft on a Kubernetes node, and no table flushed for it
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Installs or upgrades the package C(nftables) where C(nft) is missing or older than O(minimum_version). Where it is there,
    whoever brought it, one C(nft --version) is all that is started.
  - The package brings C(nftables.service), whose start, stop and reload flush every nftables table of the node, kube-proxy's
    and the CNI's as well. This module never starts, stops, reloads or enables it, and keeps the package's scripts from
    doing so while it installs, upgrades or removes.
requirements:
  - C(apt-get) and C(dpkg), or C(dnf) and C(rpm), or C(tdnf) and C(rpm), where something has to be installed
notes:
  - The distribution's own manager is used, told by C(/etc/os-release), or else the first of apt, tdnf and dnf that is there.
    Refused on a system without one, and on Flatcar and Azure Container Linux, whose C(/usr) is read-only.
  - Tested with apt on Debian 11, 12 and 13 and with dnf 4. The command lines for tdnf follow its source; tdnf itself was
    not run.
  - The package index is refreshed at most once, and only when it lacks the package or a sufficient version, or names a file that
    its source does not have any more. Nothing is asked, nothing recommended is installed, a configuration that was changed is
    kept, and with apt a run that would have to remove another package fails.
  - Without systemd, as in a chroot or an image build, it works the same. C(SYSTEMD_OFFLINE=1) then keeps packages' scripts from
    starting or telling the builder's systemd something; nothing is left behind.
  - While the package changes on a node that runs systemd, the drop-in C(90-kubenode-hold.conf) under C(/run/systemd/system) has
    systemd refuse to start, stop or restart C(nftables.service). When a run is killed, it stays until the next run or boot.
  - That this module installed the package is recorded in C(/var/lib/kubenode/nftables-package). An upgrade of a package that was
    there is not recorded, and not undone.
  - In check mode the index is not refreshed. Where the run would refresh it, a warning and the diff say so.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
options:
  state:
    description:
      - With V(present), C(nft) is there at O(minimum_version) or newer.
      - With V(absent), the package is removed if this module installed it. It stays, with a warning, when another package
        depends on it by now. No other package is removed with it. A mask that this module set is taken away.
    type: str
    choices: [present, absent]
    default: present
  minimum_version:
    description:
      - The oldest version of C(nft) that will do, in digits and dots.
      - A run fails when the package manager has none that is as new. Never downgrades.
    type: str
    default: 0.9.8
  service:
    description:
      - With V(masked), C(nftables.service) is masked, so that nobody starts it. It is not stopped; where it is active, stopping
        it later flushes nothing any more.
      - With V(ignore), it is left as it is, and a warning is given where it is enabled or active.
    type: str
    choices: [masked, ignore]
    default: ignore
  lock_timeout:
    description: How many seconds each step waits for another package manager at work to end. The error then names the lock.
    type: int
    default: 300
  command_timeout:
    description:
      - How many seconds one command of the package manager may take, locks not counted.
      - A command that takes longer is killed, and the error names it.
    type: int
    default: 1800
seealso:
  - module: kubenode.datapath.nftables_probe_snat
  - name: nft(8)
    description: The tool, and what C(flush ruleset) means.
    link: https://www.netfilter.org/projects/nftables/manpage.html
"""

EXAMPLES = r"""
- name: Have nft on the node
  kubenode.datapath.nftables_package:

- name: Have nft 1.0.2 or newer, and nobody start the service that flushes all tables
  kubenode.datapath.nftables_package:
    minimum_version: 1.0.2
    service: masked

- name: Undo it
  kubenode.datapath.nftables_package:
    state: absent
"""

RETURN = r"""
version:
  description:
    - Version of C(nft). In check mode, of the one that a run would install.
    - Null where it is not there, or where the run would have to refresh the package index to know.
  returned: success
  type: str
  sample: 1.0.6
path:
  description: Path of C(nft); null where it is not there, or not yet there in a sufficient version.
  returned: success
  type: str
  sample: /usr/sbin/nft
manager:
  description: The package manager of the node, V(apt), V(dnf) or V(tdnf); null where it has none of them.
  returned: success
  type: str
  sample: apt
service:
  description: What C(nftables.service) is up to.
  returned: success
  type: dict
  contains:
    enabled:
      description: Whether it is started at boot.
      type: bool
    active:
      description: Whether it was started and not stopped.
      type: bool
    masked:
      description: Whether it is masked, by whomever.
      type: bool
  sample: {enabled: false, active: false, masked: true}
diff:
  description: The package's version and the unit's mask before and after.
  returned: in diff mode
  type: list
  elements: dict
"""

import functools
import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._boot.masked_unit import Harmless, MaskedUnit, state_of
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.units import Units
from ansible_collections.kubenode.datapath.plugins.module_utils._core import version
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Resource
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables.package_resource import InstalledPackage
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.packages import Packages, os_release

SERVICE = "nftables.service"
LONGEST_COMMAND = 86400
OPTIONS: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "minimum_version": {"type": "str", "default": "0.9.8"},
    "service": {"type": "str", "choices": ["masked", "ignore"], "default": "ignore"},
    "lock_timeout": {"type": "int", "default": 300},
    "command_timeout": {"type": "int", "default": 1800},
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        minimum = version.wanted("minimum_version", module.params["minimum_version"])
        patience = module.params["lock_timeout"]
        if patience < 0:
            raise Invalid("lock_timeout", patience, "a number of seconds, 0 or more")
        seconds = module.params["command_timeout"]
        if not 0 < seconds <= LONGEST_COMMAND:
            raise Invalid("command_timeout", seconds, f"a number of seconds from 1 to {LONGEST_COMMAND}")
        files, units = Files(), Units(module.run)
        # Half an installation is worse than one that nobody waits for.
        runner = functools.partial(module.run, seconds=seconds, completes=True)
        manager = Packages(runner, os_release(), patience, is_offline=not units.is_running())

        package = InstalledPackage(manager, files, units, module.run, minimum if module.is_present else None)
        mask = MaskedUnit(files, units, SERVICE, desired=module.is_present)
        is_masking = module.is_present and module.params["service"] == "masked"
        # A unit that is masked before its package comes cannot be started by it.
        resources: list[Resource] = (
            [mask, package] if is_masking else [package] if module.is_present else [package, mask]
        )
        guards = [] if is_masking else [Harmless(files, units, SERVICE)]

        outcome = module.converge(resources, guards)
        for warning in package.warnings():
            module.warn(warning)
        state = state_of(files, units, SERVICE)
        is_masked = module.is_present if any(resource is mask for resource, _plan in outcome.plans) else state.masked
        service = {"enabled": state.has_links and not is_masked, "active": state.active, "masked": is_masked}
        result.update(module.report(outcome), **package.result(), manager=manager.name, service=service)


if __name__ == "__main__":
    main()
