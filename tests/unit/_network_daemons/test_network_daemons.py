# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of all of networkd's files, what its versions do, and which network daemons a node has."""

from __future__ import annotations

import typing as t
from functools import partial
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons import daemons_backend, known_daemons, networkd
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.daemon_guards import links_of_networkd
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.daemons_backend import Networkd
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.known_daemons import (
    COMPETING,
    HARMLESS,
    HOSTILE,
    KEPT_OFF,
)
from ansible_collections.kubenode.datapath.plugins.module_utils._network_daemons.networkd import ROUTES, RULES, Setting
from unit.fakes import FakeUnits, Script

OURS = networkd.PATH
EKS = "/etc/systemd/networkd.conf.d/80-release.conf"
NO = f"[Network]\n{RULES}=no\n"
YES = f"[Network]\n{RULES}=yes\n"

DECIDING: dict[str, tuple[dict[str, str], Setting]] = {
    "nothing": ({}, Setting(True, "")),
    "the main file": ({"/etc/systemd/networkd.conf": NO}, Setting(False, "/etc/systemd/networkd.conf")),
    "the first main file alone": (
        {"/usr/lib/systemd/networkd.conf": NO, "/etc/systemd/networkd.conf": "[Network]\n"},
        Setting(True, ""),
    ),
    "a drop-in before the main file": ({"/etc/systemd/networkd.conf": YES, EKS: NO}, Setting(False, EKS)),
    "the later name, whatever its folder": (
        {OURS: NO, "/usr/lib/systemd/networkd.conf.d/95-x.conf": YES},
        Setting(True, "/usr/lib/systemd/networkd.conf.d/95-x.conf"),
    ),
    "a name of /etc hides the same of /usr": (
        {EKS: NO, "/usr/lib/systemd/networkd.conf.d/80-release.conf": YES},
        Setting(False, EKS),
    ),
    "not what is no .conf": ({OURS: NO, f"{OURS}.bak": YES}, Setting(False, OURS)),
    "the last line of a file": ({OURS: NO + f"{RULES} = On \n"}, Setting(True, OURS)),
    "not a line of another section": ({OURS: NO + f"[DHCPv4]\n{RULES}=yes\n"}, Setting(False, OURS)),
    "not a comment, nor what is no boolean": ({OURS: NO + f"#{RULES}=yes\n{RULES}=maybe\n{RULES}=\n"}, Setting(False, OURS)),
    "not the other key": ({OURS: f"[Network]\n{ROUTES}=no\n"}, Setting(True, "")),
}  # fmt: skip


@pytest.mark.parametrize(("files", "setting"), DECIDING.values(), ids=DECIDING.keys())
def test_the_file_that_decides_a_setting_is_found(files: dict[str, str], setting: Setting) -> None:
    assert networkd.setting(files, RULES) == setting


@pytest.mark.parametrize(
    ("version", "keys"),
    [(None, (RULES, ROUTES)), (257, (RULES, ROUTES)), (249, (RULES, ROUTES)), (248, (ROUTES,)), (246, (ROUTES,)), (245, ())],
)  # fmt: skip
def test_the_file_has_the_settings_that_the_version_knows(version: int | None, keys: tuple[str, ...]) -> None:
    assert networkd.known(version) == keys
    text = networkd.drop_in(version)
    assert bool(text) == bool(keys)
    assert all(networkd.setting({OURS: text or ""}, key) == Setting(False, OURS) for key in keys)


OUR_FILE = {RULES: Setting(False, OURS), ROUTES: Setting(False, OURS)}
TWO_FILES = {**OUR_FILE, ROUTES: Setting(False, EKS)}


@pytest.mark.parametrize(
    ("version", "settings", "in_force", "verdict", "told"),
    [
        (252, TWO_FILES, True, KEPT_OFF, f"{RULES}=no and {ROUTES}=no in {OURS} and {EKS}"),
        (252, OUR_FILE, False, KEPT_OFF, f"{ROUTES}=no in {OURS}, from its next"),
        (252, {RULES: Setting(), ROUTES: Setting(False, OURS)}, True, HOSTILE, f"{RULES} is yes"),
        (248, {ROUTES: Setting(False, OURS)}, True, HOSTILE, "version 248 may remove foreign rules"),
        (247, {ROUTES: Setting(False, OURS)}, True, HOSTILE, "version 247 may remove foreign rules"),
        (246, {ROUTES: Setting(False, OURS)}, True, KEPT_OFF, f"{ROUTES}=no in {OURS}"),
        (245, {}, True, HOSTILE, "version 245 removes foreign routes on links that it manages, and has no setting"),
    ],
)  # fmt: skip
def test_a_version_is_judged_by_what_it_removes(
    version: int, settings: dict[str, Setting], in_force: bool, verdict: str, told: str
) -> None:
    daemon = known_daemons.networkd_daemon(True, version, settings, in_force)
    assert daemon.verdict == verdict
    assert told in daemon.reason
    assert ("at netplan apply, and at each upgrade of systemd" in daemon.reason) == ("Upgrade" in daemon.remedy)


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so", 252),  # Debian 12, Ubuntu 24.04
        ("lib/systemd/libsystemd-shared-247.so", 247),  # Debian 11
        ("usr/lib/systemd/libsystemd-shared-252-46.el9_5.2.so", 252),  # Red Hat
        ("usr/lib64/systemd/libsystemd-shared-252.23-3.amzn2023.so", 252),
        ("usr/lib/systemd/libsystemd-core-252.so", None),
        ("usr/lib/systemd/libsystemd-shared-next.so", None),
    ],
)
def test_systemds_library_tells_its_version(tmp_path: Path, path: str, version: int | None) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.touch()
    assert Networkd(Script({}), str(tmp_path)).version() == version


UDEV_RULE = "usr/lib/udev/rules.d/99-vpc-policy-routes.rules"
EC2 = {"usr/lib/systemd/system/policy-routes@.service": "", UDEV_RULE: "SUBSYSTEM"}
HOTPLUG_RULE = "etc/udev/rules.d/90-cloud-init-hook-hotplug.rules"
IFUPDOWN_RULE = "etc/udev/rules.d/75-cloud-ifupdown.rules"
CLOUD_INIT = {"usr/bin/cloud-init": "", "etc/netplan/50-cloud-init.yaml": "network: {}"}
NM_CLOUD_SETUP = {
    "usr/lib/systemd/system/nm-cloud-setup.timer": "",
    "usr/lib/systemd/system/nm-cloud-setup.service": "",
}

AGENTS: dict[str, tuple[dict[str, str], set[str], dict[str, tuple[bool, str]]]] = {
    "none": ({}, set(), {}),
    "NetworkManager": (
        {"usr/lib/systemd/system/NetworkManager.service": ""},
        {"NetworkManager.service"},
        {"NetworkManager": (True, HARMLESS)},
    ),
    "nm-cloud-setup": (NM_CLOUD_SETUP, {"nm-cloud-setup.timer"}, {"nm-cloud-setup": (True, HOSTILE)}),
    "nm-cloud-setup, disabled": (NM_CLOUD_SETUP, set(), {"nm-cloud-setup": (False, HARMLESS)}),
    "netplan": ({"usr/sbin/netplan": "", "etc/netplan/01.yaml": ""}, set(), {"netplan": (True, HARMLESS)}),
    "cloud-init": (CLOUD_INIT, set(), {"cloud-init": (True, HARMLESS), "cloud-init hotplug": (False, HARMLESS)}),
    "cloud-init that routes": (
        {**CLOUD_INIT, "etc/netplan/50-cloud-init.yaml": "    routing-policy:\n    - from: 10.0.1.10\n"},
        set(),
        {"cloud-init": (True, COMPETING), "cloud-init hotplug": (False, HARMLESS)},
    ),
    "amazon-ec2-net-utils": (EC2, set(), {"amazon-ec2-net-utils": (True, COMPETING)}),
    "amazon-ec2-net-utils, masked as on EKS": (
        {**EC2, "etc/udev/rules.d/99-vpc-policy-routes.rules": ""},
        set(),
        {"amazon-ec2-net-utils": (False, HARMLESS)},
    ),
    "amazon-ec2-net-utils, masked by comments": (
        {**EC2, "etc/udev/rules.d/99-vpc-policy-routes.rules": "# a mask\n"},
        set(),
        {"amazon-ec2-net-utils": (False, HARMLESS)},
    ),
    "amazon-ec2-net-utils, masked and still running": (
        {
            **EC2,
            "etc/udev/rules.d/99-vpc-policy-routes.rules": "",
            "run/systemd/units/invocation:refresh-policy-routes@eth1.timer": "",
        },
        set(),
        {"amazon-ec2-net-utils": (True, COMPETING)},
    ),
    "cloud-init's hotplug": ({HOTPLUG_RULE: "SUBSYSTEM"}, set(), {"cloud-init hotplug": (True, COMPETING)}),
    "cloud-init's hotplug, of an older version": (
        {"etc/udev/rules.d/10-cloud-init-hook-hotplug.rules": "SUBSYSTEM"},
        set(),
        {"cloud-init hotplug": (True, COMPETING)},
    ),
    "cloud-init's hotplug, off": (
        {HOTPLUG_RULE: "SUBSYSTEM", "etc/cloud/cloud.cfg.d/99-x.cfg": "updates: {network: {when: [boot]}}"},
        set(),
        {"cloud-init hotplug": (False, HARMLESS)},
    ),
    "cloud-init's hotplug, off in its first file": (
        {HOTPLUG_RULE: "SUBSYSTEM", "etc/cloud/cloud.cfg": "updates:\n  network:\n    when: [boot]\n"},
        set(),
        {"cloud-init hotplug": (False, HARMLESS)},
    ),
    "cloud-init's hotplug, on in a later file": (
        {
            HOTPLUG_RULE: "SUBSYSTEM",
            "etc/cloud/cloud.cfg.d/98-x.cfg": "updates:\n  network:\n    when: [boot]\n",
            "etc/cloud/cloud.cfg.d/99-x.cfg": "updates:\n  network:\n    when:\n    - boot\n    - hotplug\n",
        },
        set(),
        {"cloud-init hotplug": (True, COMPETING)},
    ),
    "cloud-init, off": (
        {HOTPLUG_RULE: "SUBSYSTEM", "etc/cloud/cloud-init.disabled": ""},
        set(),
        {"cloud-init hotplug": (False, HARMLESS)},
    ),
    "cloud-ifupdown-helper": ({IFUPDOWN_RULE: "SUBSYSTEM"}, set(), {"cloud-ifupdown-helper": (True, COMPETING)}),
    "cloud-ifupdown-helper, masked": (
        {"etc/network/cloud-ifupdown-helper": "", "lib/udev/rules.d/75-cloud-ifupdown.rules": "SUBSYSTEM", IFUPDOWN_RULE: ""},
        set(),
        {"cloud-ifupdown-helper": (False, HARMLESS)},
    ),
    "ec2-net-utils": (
        {"etc/udev/rules.d/53-ec2-network-interfaces.rules": ""},
        set(),
        {"ec2-net-utils": (True, COMPETING)},
    ),
}


@pytest.mark.parametrize(("files", "enabled", "found"), AGENTS.values(), ids=AGENTS.keys())
def test_agents_are_recognised_by_their_files(
    tmp_path: Path, files: dict[str, str], enabled: set[str], found: dict[str, tuple[bool, str]]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    units: t.Any = FakeUnits(tmp_path)
    units.enabled = enabled
    told = known_daemons.agent_daemons(daemons_backend.agents(units, str(tmp_path)), {}, {})
    assert {one.name: (one.active, one.verdict) for one in told} == found
    assert all(bool(one.remedy) == (one.verdict in (COMPETING, HOSTILE)) for one in told)


REMNANTS = {"nm-cloud-setup": [known_daemons.Remnant("ip rule 30300: from 10.9.2.7 lookup 30300", "ip rule del ...")]}


@pytest.mark.parametrize(
    ("agents", "switches", "verdicts"),
    [
        ({}, {}, {"nm-cloud-setup": (False, COMPETING)}),
        ({"nm-cloud-setup": False}, {}, {"nm-cloud-setup": (False, COMPETING)}),
        ({"nm-cloud-setup": True}, {}, {"nm-cloud-setup": (True, HOSTILE)}),
        (
            {"cloud-init hotplug": False},
            {"cloud-init hotplug": "/etc/x.cfg"},
            {"cloud-init hotplug": (False, KEPT_OFF), "nm-cloud-setup": (False, COMPETING)},
        ),
    ],
)
def test_an_agent_is_judged_by_its_state_then_by_its_rules_then_by_its_switch(
    agents: dict[str, bool], switches: dict[str, str], verdicts: dict[str, tuple[bool, str]]
) -> None:
    daemons = known_daemons.agent_daemons(agents, switches, REMNANTS)
    assert {daemon.name: (daemon.active, daemon.verdict) for daemon in daemons} == verdicts


@pytest.mark.parametrize(
    ("state", "warned"),
    [
        ("ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/eth1.network\n", True),
        ("ADMIN_STATE=unmanaged\nNETWORK_FILE=/etc/systemd/network/eth1.network\n", False),
        ("ADMIN_STATE=unmanaged\n", False),
        (None, False),
    ],
)
def test_links_that_get_addresses_and_are_networkds_are_told(tmp_path: Path, state: str | None, warned: bool) -> None:
    links = tmp_path / "run/systemd/netif/links"
    links.mkdir(parents=True)
    if state is not None:
        (links / "3").write_text(state)
    guard = partial(links_of_networkd, Networkd(Script({}), str(tmp_path)), lambda: {"eth1": 3, "eth2": 4})
    told = list(guard())
    assert bool(told) == warned
    assert all(one.startswith("systemd-networkd manages eth1 (/etc/systemd/network/eth1.network).") for one in told)
