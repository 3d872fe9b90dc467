#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nftables_package
short_description: Install nft on a Kubernetes node without flushing its tables
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Installs or upgrades the package C(nftables) if C(nft) is missing or older than O(minimum_version). If C(nft) is new enough,
    no matter how it was installed, the module runs C(nft --version) and nothing else.
  - The package contains C(nftables.service). Its start, stop and reload flush every nftables table of the node, including those
    of kube-proxy and the CNI. This module never starts, stops, reloads or enables the service, and prevents the package's
    scripts from doing so while it installs, upgrades or removes the package.
requirements:
  - C(apt-get) and C(dpkg), or C(dnf) and C(rpm), or C(tdnf) and C(rpm), if the package has to be installed
notes:
  - The module uses the distribution's package manager according to C(/etc/os-release), or else the first of apt, tdnf and dnf
    that is installed. It refuses a system without a package manager, and Flatcar and Azure Container Linux, whose C(/usr) is
    read-only.
  - Tested with apt on Debian 11, 12 and 13 and with dnf 4. The command lines for tdnf follow its source; tdnf itself was
    not run.
  - The package index is refreshed at most once, and only if it lacks the package or a sufficient version, or names a file that
    the repository no longer has. The package manager asks no questions, installs no recommended packages and keeps changed
    configuration files. With apt, a run that would have to remove another package fails.
  - The module also works without systemd, for example in a chroot or an image build. C(SYSTEMD_OFFLINE=1) then keeps the
    packages' scripts from talking to the builder's systemd.
  - While the package changes on a node that runs systemd, the drop-in C(90-kubenode-hold.conf) under C(/run/systemd/system)
    makes systemd refuse to start, stop or restart C(nftables.service). If a run is killed, the drop-in stays until the next run
    or boot.
  - The file C(/var/lib/kubenode/nftables-package) records that this module installed the package. An upgrade of a package that
    was installed before is not recorded and not undone.
  - Check mode does not refresh the index. If the run would refresh it, a warning and the diff say so.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
options:
  state:
    description:
      - With V(present), C(nft) is installed at O(minimum_version) or newer.
      - With V(absent), the package is removed if this module installed it. If another package now depends on it, it stays
        installed and the module warns. No other package is removed. A mask that this module set is removed.
    type: str
    choices: [present, absent]
    default: present
  minimum_version:
    description:
      - The oldest sufficient version of C(nft), in digits and dots.
      - A run fails if the package manager has no sufficient version. The module never downgrades.
    type: str
    default: 0.9.8
  service:
    description:
      - With V(masked), C(nftables.service) is masked, so that it cannot be started. It is not stopped. If it is active, stopping
        it later flushes nothing.
      - With V(ignore), the service is left as it is, and the module warns if it is enabled or active.
    type: str
    choices: [masked, ignore]
    default: ignore
  lock_timeout:
    description: How many seconds each step waits for another running package manager to end. After that, an error names the lock.
    type: int
    default: 300
  command_timeout:
    description:
      - How many seconds one command of the package manager may take, without the wait for locks.
      - A command that takes longer is killed, and the error names the command.
    type: int
    default: 1800
seealso:
  - module: kubenode.datapath.nftables_probe_snat
  - name: nft(8)
    description: The manual of nft, with the meaning of C(flush ruleset).
    link: https://www.netfilter.org/projects/nftables/manpage.html
"""

EXAMPLES = r"""
- name: Install nft
  kubenode.datapath.nftables_package:

- name: Install nft 1.0.2 or newer, and mask the service that flushes all tables
  kubenode.datapath.nftables_package:
    minimum_version: 1.0.2
    service: masked

- name: Remove nft and the mask if this module installed and set them
  kubenode.datapath.nftables_package:
    state: absent
"""

RETURN = r"""
version:
  description:
    - Version of C(nft). In check mode, the version that a run would install.
    - Null if C(nft) is not installed, or if check mode would have to refresh the package index to know the version.
  returned: success
  type: str
  sample: 1.0.6
path:
  description: Path of C(nft); null if C(nft) is not installed, or not in a sufficient version.
  returned: success
  type: str
  sample: /usr/sbin/nft
manager:
  description: The package manager of the node, V(apt), V(dnf) or V(tdnf); null if the node has none of them.
  returned: success
  type: str
  sample: apt
service:
  description: The state of C(nftables.service).
  returned: success
  type: dict
  contains:
    enabled:
      description: Whether the service is started at boot.
      type: bool
    active:
      description: Whether the service was started and not stopped.
      type: bool
    masked:
      description: Whether the service is masked, by this module or otherwise.
      type: bool
  sample: {enabled: false, active: false, masked: true}
diff:
  description: The package's version and the unit's mask before and after.
  returned: in diff mode
  type: list
  elements: dict
"""

from ansible_collections.kubenode.datapath.plugins.module_utils._program.program import start


def main() -> None:
    start("nftables_package")


if __name__ == "__main__":
    main()
