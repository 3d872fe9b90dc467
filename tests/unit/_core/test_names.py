# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names in options: the longest and the oddest accepted ones, and refused ones."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid

Check = t.Callable[[str, str], str]

TAKEN: list[tuple[Check, str]] = [
    *((names.interface, name) for name in ("eth0", "eth0.100", "a", "a" * 15, "_.=+@~-", "...", "Z9")),
    *((names.network_interface, name) for name in ("eth0", "eth0.100", "lo0", "all0")),
    *((names.pattern, name) for name in ("eth0", "eni*", "e*", "a" * 14 + "*", "a" * 15)),
    *((names.path, path) for path in ("/a", "/etc/kubenode/x.nft", "/a.=+@~:,-/Z9", "/a/" + "b" * 200, "/.a/b", "/a./b")),
]


@pytest.mark.parametrize(("check", "given"), TAKEN)
def test_what_is_taken_stays_as_it_was_given(check: Check, given: str) -> None:
    assert check("option", given) == given


A_LINK = "a link's name of 1 to 15 letters, digits and _.=+@~-"
A_NETWORK_INTERFACE = "the name of one network interface that leads to other machines, as eth0"
A_PATH = (
    "an absolute path of a file, of letters, digits and _.=+@~:,- without . and .. in it, each name of 200 characters at"
    " most, the last not starting with a dot"
)
REFUSED: list[tuple[Check, str, str]] = [
    *((names.interface, name, A_LINK) for name in ("", ".", "..", "a" * 16, "a/b", "a b", "a:b", "ä", "eni*", "a\n")),
    *((names.network_interface, name, A_NETWORK_INTERFACE) for name in ("all", "default", "lo")),
    *((names.network_interface, name, A_LINK) for name in ("", "eni*")),
    *((names.pattern, name, A_LINK) for name in ("", "*", "a" * 15 + "*", "e*i", "*a", "a b", "..")),
    *((names.path, path, A_PATH) for path in ("", "a", "a/b", "/", "/a/", "//a", "/a//b", "/a b", "/a\n", "/ä", "/a%b", "/$a")),
    *(
        (names.path, path, A_PATH)
        for path in ("/a/./b", "/a/../b", "/a/..", "/.a", "/a/.b", "/" + "b" * 201, "/" + "b" * 201 + "/c")
    ),
]


@pytest.mark.parametrize(("check", "given", "allowed"), REFUSED)
def test_what_is_refused_is_told_what_would_have_been_right(check: Check, given: str, allowed: str) -> None:
    with pytest.raises(Invalid) as caught:
        check("option", given)
    assert str(caught.value) == f"option must be {allowed}; {given!r} was given" and caught.value.option == "option"


def test_a_pattern_names_what_it_would_be_without_its_star() -> None:
    with pytest.raises(Invalid, match="'a b' was given"):
        names.pattern("option", "a b*")


OWN = {
    "/etc/kubenode/x.nft": "/etc/kubenode",
    "/etc/kubenode/deeper/x.nft": "/etc/kubenode",
    "/etc/kubenode-pool1/x.nft": "/etc/kubenode-pool1",
    "/opt/kubenode/x.nft": "/opt/kubenode",
    "/srv/kubenode-a.b/x.nft": "/srv/kubenode-a.b",
    "/var/lib/kubenode/backup/azure_vnet": "/var/lib/kubenode",
}
NEW = {
    "/etc/acme/probe.nft": "/etc/acme",
    "/etc/elsewhere/rules.json": "/etc/elsewhere",
    "/opt/ACME_2-x/a": "/opt/ACME_2-x",
    "/srv/0/x.nft": "/srv/0",
    "/var/lib/acme/azure_vnet": "/var/lib/acme",
    "/etc/kubenoded/x": "/etc/kubenoded",
    "/etc/kubenode-/x": "/etc/kubenode-",
    "/etc/systemd2/x": "/etc/systemd2",
}
# Folders from which other programs load or execute files, and files that they load. A list of what is permitted refuses them all.
LOADED = [
    *("/etc/cron.d/x", "/etc/cron.hourly/x", "/etc/cron.daily/x", "/etc/cron.weekly/x", "/etc/cron.monthly/x"),
    *("/etc/crontab", "/var/spool/cron/crontabs/root", "/etc/anacrontab", "/var/spool/cron/root", "/etc/ld.so.preload"),
    *("/etc/ld.so.conf.d/x.conf", "/etc/systemd/system/x.service", "/etc/systemd/system/x.service.d/a.conf"),
    *("/usr/lib/systemd/system/x.service", "/run/systemd/system/x.service", "/lib/systemd/system/x"),
    *("/usr/local/lib/systemd/x", "/etc/systemd/network/x.network", "/etc/profile.d/x.sh", "/etc/profile"),
    *("/etc/bash.bashrc", "/etc/environment", "/etc/environment.d/x.conf", "/etc/sudoers.d/x", "/etc/sudoers"),
    *("/etc/pam.d/x", "/etc/security/x", "/etc/polkit-1/rules.d/x.rules", "/etc/udev/rules.d/x.rules"),
    *("/usr/lib/udev/rules.d/x.rules", "/etc/modprobe.d/x.conf", "/etc/modules-load.d/x.conf", "/etc/init.d/x"),
    *("/etc/rc.local", "/etc/rc2.d/S01x", "/etc/xdg/autostart/x.desktop", "/etc/apt/apt.conf.d/x", "/etc/yum.conf"),
    *("/etc/NetworkManager/dispatcher.d/x", "/etc/networkd-dispatcher/routable.d/x", "/etc/network/if-up.d/x"),
    *("/etc/ppp/ip-up.d/x", "/root/.ssh/authorized_keys", "/root/.bashrc", "/home/op/.ssh/authorized_keys"),
    *("/etc/ssh/sshd_config.d/x.conf", "/etc/bash_completion.d/x", "/usr/share/bash-completion/completions/x"),
    *("/etc/binfmt.d/x.conf", "/etc/tmpfiles.d/x.conf", "/etc/sysctl.d/x.conf", "/etc/logrotate.d/x", "/etc/update-motd.d/x"),
    *("/etc/dhcp/dhclient-exit-hooks.d/x", "/etc/acpi/x", "/etc/kubernetes/manifests/x", "/etc/cni/net.d/x.conflist"),
    *("/opt/cni/bin/x", "/etc/containerd/config.toml", "/var/lib/cloud/scripts/per-boot/x", "/var/lib/dpkg/info/x.postinst"),
    *("/usr/local/bin/x", "/usr/bin/x", "/boot/x", "/lib/x", "/etc/nftables.conf", "/etc/passwd", "/etc/shadow"),
    *("/proc/sys/kernel/core_pattern", "/sys/x", "/dev/sda", "/tmp/x", "/run/kubenode/x", "/var/run/kubenode/x"),
    *("/home/kubenode/x", "/usr/lib/kubenode/x", "/etc/cron.d/kubenode/x", "/etc/kubenode", "/etc/kubenode-x"),
    *("/etc/x", "/opt/x", "/etc/acme/deeper/x", "/etc/acme.d/x", "/etc/acme+/x", "/etc/-acme/x", "/etc/_acme/x", "/var/acme/x"),
    *("/etc/systemd/x.conf", "/etc/udev/udev.conf", "/etc/ssh/sshd_config", "/etc/ssl/x", "/etc/pam/x", "/etc/apparmor/x"),
    *("/etc/alternatives/nft", "/etc/default/kubelet", "/etc/sysconfig/kubelet", "/etc/network/interfaces", "/etc/netplan/x"),
    *("/etc/nftables/main.nft", "/etc/iptables/rules.v4", "/etc/selinux/config", "/etc/skel/x", "/etc/ppp/ip-up", "/etc/xdg/x"),
    *("/etc/apt/apt.conf", "/etc/dnf/dnf.conf", "/etc/dpkg/dpkg.cfg", "/etc/rpm/macros", "/etc/crontabs/root", "/etc/kernel/x"),
    *("/etc/docker/daemon.json", "/etc/cdi/x.json", "/etc/kubernetes/x", "/etc/cni/x", "/etc/cloud/cloud.cfg", "/opt/bin/nft"),
    *("/etc/sudoers/x", "/etc/nologin/x", "/etc/profile/x", "/etc/modules/x", "/var/lib/kubelet/x", "/var/lib/private/x"),
    *("/etc/ansible/ansible.cfg", "/etc/dbus-1/system.conf", "/etc/NetworkManager/x.conf", "/etc/iproute2/rt_tables"),
]


@pytest.mark.parametrize("path", OWN)
def test_a_path_in_a_folder_of_the_collection_is_permitted(path: str) -> None:
    assert names.own_path("path", path) == path
    assert (names.own_folder(path), names.new_folder(path)) == (OWN[path], "")


@pytest.mark.parametrize("path", NEW)
def test_a_path_in_a_new_folder_is_permitted(path: str) -> None:
    assert names.own_path("path", path) == path
    assert (names.own_folder(path), names.new_folder(path)) == ("", NEW[path])


@pytest.mark.parametrize("path", LOADED)
def test_a_path_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(Invalid, match="must be (an absolute path|in or below a folder that is named kubenode or kubenode-NAME)"):
        names.own_path("path", path)


@pytest.mark.parametrize(
    "path", ["/etc/kubenode/../cron.d/x", "/etc/kubenode/./x", "/etc/kubenode//x", "/etc/kubenode-/../cron.d/x"]
)
def test_no_dots_lead_out_of_a_folder_of_the_collection(path: str) -> None:
    with pytest.raises(Invalid, match="must be an absolute path"):
        names.own_path("path", path)


def test_a_module_may_permit_a_further_folder_and_no_folder_below_it() -> None:
    beside = ["/etc/sysctl.d"]
    assert names.own_path("path", "/etc/sysctl.d/x.conf", beside) == "/etc/sysctl.d/x.conf"
    for path in ("/etc/sysctl.d/a/x.conf", "/etc/x"):
        with pytest.raises(Invalid, match="must be in /etc/sysctl.d, or in or below"):
            names.own_path("path", path, beside)
