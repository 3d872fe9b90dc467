#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: network_daemons
short_description: Keep a node's network daemons off rules and routes that are not theirs
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - systemd-networkd removes every policy rule that it did not make, and routes on links that it manages, whenever it configures
    any link; as when an interface is plugged in, or at C(netplan apply). This module has it leave them alone, by
    C(ManageForeignRoutingPolicyRules=no) (systemd 249) and C(ManageForeignRoutes=no) (systemd 246) in
    C(/etc/systemd/networkd.conf.d/90-kubenode.conf).
  - Where other files that outlive a boot say so already, as on nodes of EKS, nothing is written.
  - Other daemons and cloud agents are recognised by their files; see RV(daemons). nm-cloud-setup, which clears rules of pods,
    is refused where it is at work. A warning is given for those that route the same interfaces in their own way.
notes:
  - The drop-in is written wherever systemd-networkd is installed, as it may be started later.
  - A running systemd-networkd is restarted when it was started before the settings were written. Its links, their addresses
    and routes stay as they are; while it starts, C(KeepConfiguration=static) is set for each file of C(systemd.network) that
    does not set it, in C(/run/systemd/network).
  - Before systemd 249 there is no setting for rules, before 246 none for routes. Then a warning is given.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
options:
  state:
    description:
      - With V(present), daemons are kept off.
      - With V(absent), the drop-in is removed; and systemd-networkd, if it was started with it, is restarted. It then removes
        rules that it did not make when it next configures a link.
    type: str
    choices: [present, absent]
    default: present
  restart:
    description:
      - Whether a running systemd-networkd is restarted where that is needed. With V(false), its next start brings it.
      - It never is in a root that is not process 1's, as in a chroot or an image build.
    type: bool
    default: true
seealso:
  - module: kubenode.datapath.policy_routes
  - name: networkd.conf
    description: The settings, and since when they are known.
    link: https://www.freedesktop.org/software/systemd/man/latest/networkd.conf.html
"""

EXAMPLES = r"""
- name: Keep network daemons off rules and routes of the CNI and of ours
  kubenode.datapath.network_daemons:

- name: Prepare an image, or leave the restart to a maintenance window
  kubenode.datapath.network_daemons:
    restart: false

- name: Undo it
  kubenode.datapath.network_daemons:
    state: absent
"""

RETURN = r"""
daemons:
  description:
    - The network daemons and cloud agents that the node has, out of systemd-networkd, NetworkManager, nm-cloud-setup, netplan,
      cloud-init, amazon-ec2-net-utils and its forerunner ec2-net-utils.
    - In check mode, as a run would leave them.
  returned: success
  type: list
  elements: dict
  sample:
    - name: systemd-networkd
      active: true
      version: 252
      verdict: kept_off
      reason: /etc/systemd/networkd.conf.d/90-kubenode.conf says so
  contains:
    name:
      description: The daemon.
      type: str
    active:
      description: Whether it runs, or, of an agent that does not run all the time, whether it is set up to.
      type: bool
    version:
      description: Its version, where the node's files tell it. For systemd-networkd that is systemd's.
      type: int
    verdict:
      description:
        - What it does to rules and routes that it did not make. V(harmless), it leaves them alone; V(kept_off), its
          configuration has it leave them alone; V(hostile), it removes them.
        - V(competing), it leaves them alone, but routes the same interfaces in its own way.
      type: str
    reason:
      description: Why.
      type: str
diff:
  description: The drop-in before and after.
  returned: in diff mode
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.kubenode.datapath.plugins.module_utils._boot.units import Units
from ansible_collections.kubenode.datapath.plugins.module_utils._core.converge import Guard
from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons import (
    daemons_backend,
    known_daemons,
    networkd,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.daemon_guards import (
    LaterFile,
    NetworkDaemons,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.known_daemons import Daemon
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.networkd_backend import Networkd
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.networkd_resource import (
    NetworkdSettings,
    has_read,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import managed_files
from ansible_collections.kubenode.datapath.plugins.module_utils._platform.files import Files

OPTIONS: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "restart": {"type": "bool", "default": True},
}


def main() -> None:
    module = Module(OPTIONS)
    with module.reporting() as result:
        units, backend = Units(module.run), Networkd(module.run)
        is_running = units.is_running()
        restarts = is_running and module.params["restart"]

        configuration, started = backend.configuration(), backend.started() if is_running else None
        texts = {path: file.text for path, file in configuration.items()}
        version = backend.version()
        keys = networkd.known(version) if backend.is_installed() else ()
        text = networkd.drop_in(version) if module.is_present and keys and _is_needed(texts, keys) else None
        settings = _settings(texts, text, keys)

        daemons = known_daemons.of_agents(daemons_backend.read(units))
        if backend.is_installed():
            active = restarts or started is None or has_read(configuration, keys, started)
            daemons.insert(0, known_daemons.of_networkd(started is not None, version, settings, active))
        resource = NetworkdSettings(Files(), backend, text, keys if module.is_present else (), restarts)
        guards: list[Guard] = [LaterFile(settings), NetworkDaemons(daemons)] if module.is_present else []

        outcome = module.converge([resource], guards)
        result.update(module.report(outcome), daemons=[_told(one) for one in daemons])


def _is_needed(texts: dict[str, str], keys: t.Sequence[str]) -> bool:
    """Ours stays where it is: whoever else says so may go again. Others count where they outlive a boot."""
    lasting = {path: text for path, text in texts.items() if not path.startswith(networkd.PASSING)}
    return networkd.PATH in texts or any(networkd.setting(lasting, key).value for key in keys)


def _settings(texts: dict[str, str], text: str | None, keys: t.Sequence[str]) -> dict[str, networkd.Setting]:
    """As they will be."""
    others = {path: other for path, other in texts.items() if path != networkd.PATH}
    after = others if text is None else {**others, networkd.PATH: managed_files.HEADING + text}
    return {key: networkd.setting(after, key) for key in keys}


def _told(daemon: Daemon) -> dict[str, t.Any]:
    return {name: value for name, value in daemon._asdict().items() if name != "remedy"}


if __name__ == "__main__":
    main()
