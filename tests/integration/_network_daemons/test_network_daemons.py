# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""network_daemons: the twelve steps, foreign files, and a real networkd that is restarted without a loss."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sampling import sampled

from lab import Lab, namespace
from lab.container import SystemdNode
from lab.machine import Machine
from lab.node_conditions import ANOTHER_ROOT
from lab.podman import Podman
from lab.prober import Prober
from lab.server import Servers
from lab.steps import Steps, warnings

PATH = "/etc/systemd/networkd.conf.d/90-kubenode.conf"
EKS = "/etc/systemd/networkd.conf.d/80-release.conf"
NO = "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n"
LINES = "ManageForeignRoutingPolicyRules=no and ManageForeignRoutes=no"


@pytest.fixture
def steps(lab: Lab) -> Steps:
    return Steps(lab.node("node1"), "network_daemons")


def networkd(result: dict[str, Any]) -> dict[str, Any]:
    (found,) = (daemon for daemon in result["daemons"] if daemon["name"] == "systemd-networkd")
    return dict(found)


# The twelve steps, on a node on which networkd does not run


def test_with_the_file_networkd_is_kept_off_and_without_it_hostile(steps: Steps) -> None:
    created = steps.run()
    assert NO in created["diff"][0]["after"] and steps.node.read(PATH).endswith(NO)
    assert (networkd(created)["active"], networkd(created)["verdict"]) == (False, "kept_off")
    assert networkd(steps.run(state="absent"))["verdict"] == "hostile"


def test_a_file_of_the_image_with_both_settings_is_enough(steps: Steps) -> None:
    """As on nodes of EKS. If the module's file was there first, it stays."""
    node = steps.node
    node.write(EKS, NO)
    before = node.snapshot()
    satisfied = steps.run()
    assert (satisfied["changed"], networkd(satisfied)["reason"]) == (False, f"{LINES} in {EKS}")
    assert not steps.run(state="absent")["changed"]
    assert node.snapshot() == before
    node.remove(EKS)
    steps.run()
    node.write(EKS, NO)
    assert not steps.run()["changed"]


def test_settings_in_run_do_not_count(steps: Steps) -> None:
    steps.node.write("/run/systemd/networkd.conf.d/80-release.conf", NO)
    assert steps.run()["changed"]


def test_one_of_the_two_settings_is_not_enough(steps: Steps) -> None:
    steps.node.write(EKS, "[Network]\nManageForeignRoutes=no\n")
    assert steps.run()["changed"]


def test_a_later_file_that_says_otherwise_is_refused(steps: Steps) -> None:
    later = "/etc/systemd/networkd.conf.d/95-other.conf"
    steps.node.write(later, "[Network]\nManageForeignRoutes=yes\n")
    told = steps.refused()
    assert f"{later} sets ManageForeignRoutes to yes" in told and PATH in told and "Nothing was changed" in told


def test_a_foreign_file_in_our_place_is_refused_and_left_by_absent(steps: Steps) -> None:
    steps.node.write(PATH, "# mine\n")
    assert f"{PATH} may not be replaced by this run" in steps.refused()
    assert not steps.run(state="absent")["changed"]


def test_nm_cloud_setup_is_refused_where_it_is_at_work(steps: Steps) -> None:
    node = steps.node
    node.write("/etc/systemd/system/nm-cloud-setup.timer", "[Timer]\n")
    (idle,) = (one for one in steps.run()["daemons"] if one["name"] == "nm-cloud-setup")
    assert (idle["active"], idle["verdict"]) == (False, "harmless")
    wants = "/etc/systemd/system/timers.target.wants"
    node.run(["mkdir", "-p", wants])
    node.run(["ln", "-s", "/etc/systemd/system/nm-cloud-setup.timer", wants])
    told = steps.refused()
    assert "clears those of pods" in told and "systemctl disable --now nm-cloud-setup.timer" in told
    assert steps.run(state="absent")["changed"]


def test_a_daemon_that_competes_is_warned_of(steps: Steps) -> None:
    steps.node.write("/etc/udev/rules.d/53-ec2-network-interfaces.rules", "")
    (warning,) = warnings(steps.run())
    assert warning.startswith("ec2-net-utils is active") and "Remove the package" in warning


# What an agent left in the kernel


def daemon(result: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (daemon for daemon in result["daemons"] if daemon["name"] == name)
    return dict(found)


RULE_LEFT = "30300: from 10.9.2.7 lookup 30300"


def test_an_agent_that_ended_is_judged_by_its_rules(steps: Steps) -> None:
    """As after the remedy of the module itself: the timer is disabled, and the rule still decides where packets go."""
    node = steps.node
    node.write("/etc/systemd/system/nm-cloud-setup.timer", "[Timer]\n")
    node.ip(["link add eth1 type veth peer name far", "address add 10.9.2.7/24 dev eth1", "link set eth1 up", "link set far up"])
    assert (daemon(steps.run(), "nm-cloud-setup")["verdict"], warnings(steps.run())) == ("harmless", [])
    way = node.run(["ip", "route", "get", "10.9.2.9", "from", "10.9.2.7"]).stdout
    node.ip(["rule add priority 30300 from 10.9.2.7 lookup 30300"])
    assert daemon(steps.run(), "nm-cloud-setup")["verdict"] == "harmless", "a table without routes takes no packet"
    node.ip(["route add table 30300 default dev lo", "rule add priority 30301 from 10.9.2.8 lookup main"])
    assert node.run(["ip", "route", "get", "10.9.2.9", "from", "10.9.2.7"]).stdout != way
    result = steps.run()
    assert not result["changed"] and daemon(result, "nm-cloud-setup") == {
        "name": "nm-cloud-setup",
        "active": False,
        "version": None,
        "verdict": "competing",
        "reason": f"it is not active, but what it left in the kernel still routes packets: ip rule {RULE_LEFT}",
    }
    (warning,) = warnings(result)
    assert warning.startswith("nm-cloud-setup: it is not active")
    node.remove("/etc/systemd/system/nm-cloud-setup.timer")
    assert daemon(steps.run(), "nm-cloud-setup")["verdict"] == "competing", "the package is gone, its rule is not"
    node.run(["sh", "-c", warning.rpartition("Remove it: ")[2].rstrip(".")])
    assert node.run(["ip", "route", "get", "10.9.2.9", "from", "10.9.2.7"]).stdout == way
    assert "nm-cloud-setup" not in [each["name"] for each in steps.run()["daemons"]] and warnings(steps.run()) == []


# Agents that configure interfaces as they appear


UDEV, CLOUD = "/etc/udev/rules.d", "/etc/cloud/cloud.cfg.d"
NET_UTILS_RULE = "/run/udev/rules.d/99-vpc-policy-routes.rules"  # a node of the lab shares /usr with its host
SWITCHES = {
    "amazon-ec2-net-utils": f"{UDEV}/99-vpc-policy-routes.rules",
    "cloud-init hotplug": f"{CLOUD}/99-kubenode-hotplug.cfg",
    "cloud-ifupdown-helper": f"{UDEV}/76-kubenode-ifupdown.rules",
}


@pytest.fixture
def agents(steps: Steps) -> Steps:
    """A node with all the agents, as no image has them together."""
    node = steps.node
    node.write(NET_UTILS_RULE, 'SUBSYSTEM=="net", ACTION=="add", TAG+="systemd"\n')
    node.write("/etc/systemd/system/policy-routes@.service", "[Service]\nType=oneshot\nExecStart=true\n")
    node.write(f"{CLOUD}/05_logging.cfg", "logging: {}\n")
    node.write(f"{UDEV}/90-cloud-init-hook-hotplug.rules", 'SUBSYSTEM=="net", RUN+="/usr/lib/cloud-init/hook-hotplug"\n')
    node.write(f"{UDEV}/75-cloud-ifupdown.rules", 'ENV{INTERFACE}=="eth*|en*", RUN+="/etc/network/cloud-ifupdown-helper"\n')
    return steps


def states(result: dict[str, Any]) -> set[tuple[bool, str]]:
    return {(each["active"], each["verdict"]) for each in result["daemons"] if each["name"] in SWITCHES}


def test_agents_are_kept_off_interfaces_that_appear_and_absent_lets_them(agents: Steps) -> None:
    node = agents.node
    clean = node.snapshot()
    result = agents.four()
    assert states(result) == {(False, "kept_off")} and warnings(result) == []
    assert (
        daemon(result, "cloud-init hotplug")["reason"] == f"{SWITCHES['cloud-init hotplug']} keeps it off interfaces that appear"
    )
    assert all(node.exists(path) for path in SWITCHES.values())
    node.write(SWITCHES["cloud-ifupdown-helper"], node.read(SWITCHES["cloud-ifupdown-helper"]) + "# an older run of ours\n")
    agents.four()
    ignored = agents.four(agents="ignore")
    assert states(ignored) == {(True, "competing")} and len(warnings(ignored)) == len(SWITCHES)
    agents.run()
    with node.count_processes() as calls:
        assert not agents.run()["changed"]
    assert calls == []
    agents.four(state="absent")
    assert node.snapshot() == clean


def test_an_agent_that_another_file_keeps_off_and_a_foreign_file_are_left(agents: Steps) -> None:
    """As on nodes of EKS and kOps."""
    node = agents.node
    node.write(SWITCHES["amazon-ec2-net-utils"], "")
    node.write(f"{CLOUD}/99-disable-network-hotplug.cfg", "updates:\n  network:\n    when:\n    - boot-new-instance\n")
    node.write(SWITCHES["cloud-ifupdown-helper"], "# mine\n")
    before = node.snapshot()
    result = agents.run()
    assert (daemon(result, "amazon-ec2-net-utils")["verdict"], daemon(result, "cloud-init hotplug")["verdict"]) == (
        "harmless",
    ) * 2
    assert daemon(result, "cloud-ifupdown-helper")["verdict"] == "competing", "the foreign file does nothing"
    agents.run(state="absent")
    assert node.snapshot() == before


def test_an_agent_that_a_later_file_keeps_on_is_warned_of_by_the_first_run(agents: Steps) -> None:
    agents.node.write(f"{CLOUD}/99-x.cfg", "updates: {network: {when: [boot, hotplug]}}\n")
    for _run in range(2):
        result = agents.run()
        assert daemon(result, "cloud-init hotplug")["verdict"] == "competing" and "cloud-init hotplug" in str(warnings(result))
    assert not agents.node.exists(SWITCHES["cloud-init hotplug"])


def test_an_image_gets_the_files(steps: Steps) -> None:
    node = steps.node
    node.run(["sh", "-c", ANOTHER_ROOT])
    node.run(["sh", "-c", "mkdir -p /mnt/etc/udev/rules.d"])
    node.write(f"/mnt{UDEV}/75-cloud-ifupdown.rules", 'RUN+="/etc/network/cloud-ifupdown-helper"\n')
    for changed in (True, False):
        result = node.module("network_daemons", {}, through=["chroot", "/mnt"])
        assert not result["failed"] and result["changed"] is changed
        assert daemon(result, "cloud-ifupdown-helper")["verdict"] == "kept_off"
    assert node.exists(f"/mnt{SWITCHES['cloud-ifupdown-helper']}") and node.read(f"/mnt{PATH}").endswith(NO)
    assert node.module("network_daemons", {"state": "absent"}, through=["chroot", "/mnt"])["changed"]
    assert not node.exists(f"/mnt{SWITCHES['cloud-ifupdown-helper']}")


def test_units_that_run_on_are_warned_of_until_they_end(agents: Steps) -> None:
    agents.node.run(["mkdir", "-p", "/run/systemd/units"])
    agents.node.run(["ln", "-s", "0123", "/run/systemd/units/invocation:refresh-policy-routes@eth1.timer"])
    result = agents.run()
    assert agents.node.exists(SWITCHES["amazon-ec2-net-utils"])
    assert daemon(result, "amazon-ec2-net-utils")["verdict"] == "competing"
    (warning,) = warnings(result)
    assert "systemctl stop 'refresh-policy-routes@*.timer'" in warning and "those of pods included" in warning
    assert not agents.run()["changed"]


def test_firewalld_that_flushes_at_a_reload_is_warned_of(steps: Steps) -> None:
    node = steps.node
    node.write("/etc/systemd/system/firewalld.service", "[Service]\nExecStart=true\n")
    assert daemon(steps.run(), "firewalld")["verdict"] == "harmless"
    node.run(["mkdir", "-p", "/run/systemd/units"])
    node.run(["ln", "-s", "0123", "/run/systemd/units/invocation:firewalld.service"])
    (warning,) = warnings(steps.run())
    assert warning.startswith("firewalld is active: firewall-cmd --reload flushes all rules of iptables")
    assert "Set FlushAllOnReload=no in /etc/firewalld/firewalld.conf" in warning
    node.write("/etc/firewalld/firewalld.conf", "FlushAllOnReload=no\n")
    assert (daemon(steps.run(), "firewalld")["verdict"], warnings(steps.run())) == ("kept_off", [])


def test_a_second_default_route_by_dhcp_is_warned_of(steps: Steps) -> None:
    node = steps.node
    node.ip(["link add eth1 type veth peer name far", "address add 10.9.2.7/24 dev eth1", "link set eth1 up", "link set far up"])
    node.ip(["route add default via 10.9.2.1 dev eth1 proto dhcp metric 512"])
    for link in ("eth0", "eth1"):
        number = node.run(["cat", f"/sys/class/net/{link}/ifindex"]).stdout.strip()
        node.write(f"/run/systemd/netif/leases/{number}", "ADDRESS=10.9.2.7\nROUTER=10.9.2.1\n")
        node.write(f"/run/systemd/netif/links/{number}", "NETWORK_FILE=/usr/lib/systemd/network/80-ec2.network\n")
    (warning,) = warnings(steps.run())
    assert "gave eth1 a default route by DHCP (/usr/lib/systemd/network/80-ec2.network)" in warning
    node.run(["sh", "-c", warning.rpartition("remove the route: ")[2].rstrip(".")])
    assert warnings(steps.run()) == []


# networkd runs


NETWORK = """\
[Match]
MACAddress=02:00:00:00:00:01
[Network]
Address=10.0.0.10/24
Gateway=10.0.0.1
LinkLocalAddressing=no
"""
FOREIGN = [
    "rule add priority 1000 to 10.1.1.1 table main",
    "rule add priority 1001 to 10.1.1.1 table main protocol 75",
    "address add 10.0.0.77/32 dev eth0",
    "route add table 100 default via 10.0.0.1 dev eth0 protocol 75",
    "route add 10.9.0.0/16 via 10.0.0.1",
]
PORT = 9000
NUMBERS = itertools.count()


class Site:
    """A node that boots with networkd, and its router."""

    def __init__(self, podman: Podman, router: Machine, suite: str) -> None:
        self.router = router
        self.node = SystemdNode(f"networkd-{next(NUMBERS)}", podman, podman.image(suite), self._plug)
        self.node.start()
        self.node.wait_until_booted()
        self.node.write("/etc/systemd/network/10-eth0.network", NETWORK)
        self.node.run(["systemctl", "enable", "--quiet", "--now", "systemd-networkd"])
        self.wait_until_configured()

    def _plug(self, node: SystemdNode) -> None:
        self.router.run(["ip", "link", "delete", "port"], check=False)
        self.router.ip(
            [
                f"link add port type veth peer name eth0 address 02:00:00:00:00:01 netns {node.pid}",
                "address add 10.0.0.1/24 dev port",
                "link set port up",
            ]
        )

    def wait_until_configured(self, link: str = "eth0") -> None:
        self.node.run(["/lib/systemd/systemd-networkd-wait-online", "--timeout=10", f"--interface={link}:carrier"])

    def put(self) -> None:
        """Add foreign rules and routes."""
        self.node.ip(FOREIGN)
        self.node.run(["ip", "-6", "rule", "add", "priority", "1001", "to", "fd00::1", "table", "main", "protocol", "75"])

    def state(self) -> dict[str, Any]:
        """The rules, routes and addresses of other programs and networkd."""
        told = self.node.snapshot()
        return {key: told[key] for key in ("rules -4", "rules -6", "routes -4", "addresses")}

    def hotplug(self) -> None:
        """An interface that networkd configures."""
        self.node.write("/run/systemd/network/20-eth1.network", "[Match]\nName=eth1\n[Network]\nLinkLocalAddressing=no\n")
        self.router.ip([f"link add port1 type veth peer name eth1 netns {self.node.pid}", "link set port1 up"])
        self.node.run(["networkctl", "reload"])
        self.wait_until_configured("eth1")
        self.router.ip(["link delete port1"])

    def networkd(self) -> str:
        return self.node.run(["systemctl", "show", "--property=MainPID", "--value", "systemd-networkd"]).stdout.strip()

    def run(self, **options: Any) -> dict[str, Any]:
        result = self.node.module("network_daemons", options)
        assert not result["failed"], result
        return result

    @contextmanager
    def watched(self) -> Iterator[list[float]]:
        """The times at which the node did not answer within 50 milliseconds."""
        gaps: list[float] = []
        done = threading.Event()
        prober = Prober(self.router)

        def watch() -> None:
            while not done.wait(0.005):
                if not prober.udp("10.0.0.10", PORT, timeout=0.05, tries=1):
                    gaps.append(time.monotonic())

        servers = Servers()
        servers.start(self.node, PORT)
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield gaps
        finally:
            done.set()
            thread.join()
            servers.close()


@pytest.fixture
def router() -> Iterator[Machine]:
    with namespace.machine("router") as machine:
        yield machine


@pytest.mark.parametrize("suite", sampled(["bullseye", "trixie"], lambda suite: suite == "bullseye"))
def test_udev_runs_the_helper_for_interfaces_and_not_for_links_of_pods(podman: Podman, router: Machine, suite: str) -> None:
    node = Site(podman, router, suite).node
    node.write(f"{UDEV}/75-cloud-ifupdown.rules", """SUBSYSTEM=="net", ENV{INTERFACE}=="eth*|en*", RUN+="/bin/helper %k"\n""")
    node.ip(["link add eni0123456789a type veth peer name eth7"])

    def helped() -> list[str]:
        tests = (f"udevadm test --action=add /sys/class/net/{name} 2>&1" for name in ("eth7", "eni0123456789a"))
        printed = "".join(node.run(["sh", "-c", test], check=False).stdout for test in tests)
        return [
            word
            for word in ("helper eth7", "helper eni0123456789a", "systemd-sysctl --prefix=/net/ipv4/conf/eni")
            if word in printed
        ]

    clean = helped()
    assert clean == ["helper eth7", "helper eni0123456789a", "systemd-sysctl --prefix=/net/ipv4/conf/eni"]
    assert node.module("network_daemons")["changed"]
    assert helped() == [clean[0], clean[2]]
    assert not node.module("network_daemons")["changed"]
    assert node.module("network_daemons", {"state": "absent"})["changed"] and helped() == clean


@pytest.mark.parametrize("suite", sampled(["bullseye", "bookworm", "trixie"], lambda suite: suite != "trixie"))
def test_a_networkd_that_runs_is_restarted_once_and_nothing_is_lost(podman: Podman, router: Machine, suite: str) -> None:
    site = Site(podman, router, suite)
    bare = site.node.snapshot()
    site.put()
    before, first = site.state(), site.networkd()
    with site.watched() as gaps:
        result = site.run()
        time.sleep(0.5)  # networkd still configures links after it has told systemd that it is up
    assert gaps == []
    second = site.networkd()
    assert (result["changed"], second != first) == (True, True)
    assert site.state() == before
    assert not site.run()["changed"]
    assert site.networkd() == second
    assert networkd(result)["active"]
    if suite == "bullseye":  # 247 has the setting for routes only
        assert networkd(result)["verdict"] == "hostile" and "Upgrade systemd" in warnings(result)[0]
    else:
        assert networkd(result)["verdict"] == "kept_off"
        site.hotplug()
        assert site.state()["rules -4"] == before["rules -4"]
    held = site.state()
    site.run(state="absent")
    assert (site.networkd(), site.state()) == (second, held)
    assert site.node.snapshot()["files"] == bare["files"]
    assert not site.run(state="absent")["changed"]


def test_without_it_a_hotplug_costs_the_rules(podman: Podman, router: Machine) -> None:
    """The reason for the module. If the rules stayed, the test above would prove nothing."""
    site = Site(podman, router, "bookworm")
    site.put()
    site.hotplug()
    assert not [line for line in site.state()["rules -4"] if re.match("100[01]:", line)]


def test_a_restart_that_was_not_asked_for_is_caught_up_with(podman: Podman, router: Machine) -> None:
    site = Site(podman, router, "bookworm")
    first = site.networkd()
    written = site.run(restart=False)
    assert (written["changed"], site.networkd()) == (True, first)
    assert networkd(written)["reason"] == f"{LINES} in {PATH}, from its next start on"
    caught_up = site.run()
    assert caught_up["changed"] and site.networkd() != first
    assert "was started after this was written" in caught_up["diff"][0]["after"]
    third = site.networkd()
    assert (site.run()["changed"], site.run(restart=False)["changed"], site.networkd()) == (False, False, third)
    site.node.reboot()
    assert not site.run()["changed"]


def test_a_networkd_that_does_not_start_again_is_an_error_and_the_file_goes(podman: Podman, router: Machine) -> None:
    site = Site(podman, router, "bookworm")
    site.node.write("/run/systemd/system/systemd-networkd.service.d/x.conf", "[Service]\nExecStartPre=/bin/false\n")
    site.node.run(["systemctl", "daemon-reload"])
    failed = site.node.module("network_daemons")
    assert failed["failed"] and "restart systemd-networkd.service, failed" in failed["msg"]
    assert "Still to undo: restart systemd-networkd.service" in failed["msg"]
    assert not site.node.exists(PATH)
    assert not site.node.exists("/run/systemd/network/10-eth0.network.d")


def test_a_profile_that_lacks_a_library_or_fails_later_costs_no_foreign_rule(podman: Podman, router: Machine) -> None:
    """networkd without the settings removes foreign rules as it starts, so it is started with them or not at all."""
    site = Site(podman, router, "bookworm")
    site.put()
    before, first = site.state(), site.networkd()
    routed = {"protocol": 76, "rules": [{"priority": 900, "from": "10.9.9.9", "table": 1003}]}
    profile = {"mode": "runtime", "modules": [{"network_daemons": {}}, {"policy_routes": routed}]}
    fails = "/run/systemd/system/kubenode-policy-routes-76.service.d/x.conf"
    site.node.write(fails, "[Service]\nExecStart=\nExecStart=/bin/false\n")
    failed = site.node.module("profile", profile)
    assert failed["failed"] and "were undone" in failed["msg"], failed
    assert site.state() == before and not site.node.exists(PATH)
    second = site.networkd()
    assert second != first
    site.node.remove(fails)
    site.node.run(["systemctl", "daemon-reload"])
    result = site.node.module("profile", profile)
    assert not result["failed"] and result["changed"], result
    assert [line for line in site.state()["rules -4"] if "proto 76" not in line] == before["rules -4"]
