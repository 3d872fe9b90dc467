#!/usr/bin/python
# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: network_daemons
short_description: Keep a node's network daemons from removing foreign rules and routes
version_added: 0.1.0
author:
  - kubenode.datapath contributors (@kubenode)
description:
  - Whenever systemd-networkd configures a link, for example when an interface is plugged in or at C(netplan apply), it removes
    every policy rule that it did not make, and such routes on links that it manages. This module prevents that with
    C(ManageForeignRoutingPolicyRules=no) (systemd 249) and C(ManageForeignRoutes=no) (systemd 246) in
    C(/etc/systemd/networkd.conf.d/90-kubenode.conf).
  - If other permanent files already have these settings, as on nodes of EKS, nothing is written.
  - Other daemons and cloud agents are recognised by their files; see RV(daemons). The module refuses to run if nm-cloud-setup is
    active, because that clears rules of pods. It warns of daemons that route the same interfaces in their own way.
notes:
  - The drop-in is written whenever systemd-networkd is installed, because systemd-networkd may be started later.
  - A running systemd-networkd is restarted if it was started before the settings were written. Its links, their addresses
    and routes are kept. During the restart, C(KeepConfiguration=static) is set in C(/run/systemd/network) for each
    C(systemd.network) file that does not set it.
  - systemd before 249 has no setting for rules, and systemd before 246 has none for routes. The module warns of such a version if
    it removes foreign rules or routes.
extends_documentation_fragment:
  - kubenode.datapath._attributes
  - kubenode.datapath._attributes.all_group
options:
  state:
    description:
      - With V(present), systemd-networkd keeps foreign rules and routes.
      - With V(absent), the drop-in is removed, and systemd-networkd is restarted if it had read it. systemd-networkd then removes
        rules that it did not make when it next configures a link.
    type: str
    choices: [present, absent]
    default: present
  restart:
    description:
      - Whether to restart a running systemd-networkd if that is needed. With V(false), the settings apply from its next start.
      - systemd-networkd is never restarted in a root that is not process 1's, such as a chroot or an image build.
    type: bool
    default: true
seealso:
  - module: kubenode.datapath.policy_routes
  - name: networkd.conf
    description: The settings, and the versions that introduced them.
    link: https://www.freedesktop.org/software/systemd/man/latest/networkd.conf.html
"""

EXAMPLES = r"""
- name: Keep systemd-networkd from removing rules and routes of the CNI and of this collection
  kubenode.datapath.network_daemons:

- name: Prepare an image, or leave the restart to a maintenance window
  kubenode.datapath.network_daemons:
    restart: false

- name: Remove the settings
  kubenode.datapath.network_daemons:
    state: absent
"""

RETURN = r"""
daemons:
  description:
    - The network daemons and cloud agents on the node. Known are systemd-networkd, NetworkManager, nm-cloud-setup, netplan,
      cloud-init, amazon-ec2-net-utils and its predecessor ec2-net-utils.
    - In check mode, their state after a run.
  returned: success
  type: list
  elements: dict
  sample:
    - name: systemd-networkd
      active: true
      version: 252
      verdict: kept_off
      reason: >-
        ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no in /etc/systemd/networkd.conf.d/90-kubenode.conf
  contains:
    name:
      description: Name of the daemon.
      type: str
    active:
      description: Whether the daemon runs. For an agent that does not run all the time, whether it is set up to run.
      type: bool
    version:
      description: Version of the daemon; null if the node's files do not tell it. For systemd-networkd, the version of systemd.
      type: int
    verdict:
      description:
        - What the daemon does to rules and routes that it did not make.
        - With V(harmless), it keeps them. With V(kept_off), it keeps them because of its configuration. With V(hostile), it
          removes them. With V(competing), it keeps them, but routes the same interfaces in its own way.
      type: str
    reason:
      description: The reason for the verdict.
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
    """True if the drop-in exists, or if the permanent files do not set all keys to no.

    An existing drop-in stays, because another file that has the settings may be removed later.
    """
    lasting = {path: text for path, text in texts.items() if not path.startswith(networkd.PASSING)}
    return networkd.PATH in texts or any(networkd.setting(lasting, key).value for key in keys)


def _settings(texts: dict[str, str], text: str | None, keys: t.Sequence[str]) -> dict[str, networkd.Setting]:
    """The settings after the run."""
    others = {path: other for path, other in texts.items() if path != networkd.PATH}
    after = others if text is None else {**others, networkd.PATH: managed_files.HEADING + text}
    return {key: networkd.setting(after, key) for key in keys}


def _told(daemon: Daemon) -> dict[str, t.Any]:
    return {name: value for name, value in daemon._asdict().items() if name != "remedy"}


if __name__ == "__main__":
    main()
