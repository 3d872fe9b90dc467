# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names in options: the longest and oddest accepted ones, and refused ones. Printed texts change no terminal."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure, Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._core.option import Option
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import all_printable, in_one_line, printable

Check = t.Callable[[str, str], str]

TAKEN: list[tuple[Check, str]] = [
    *((names.interface, name) for name in ("eth0", "eth0.100", "a", "a" * 15, "_.=+@~-", "...", "Z9")),
    *((names.network_interface, name) for name in ("eth0", "eth0.100", "lo0", "all0")),
    *((names.pattern, name) for name in ("eth0", "eni*", "e*", "a" * 14 + "*", "a" * 15)),
    *((names.path, path) for path in ("/a", "/etc/kubenode/x.nft", "/a.=+@~:,-/Z9", "/a/" + "b" * 200, "/.a/b", "/a./b")),
]


@pytest.mark.parametrize(("check", "given"), TAKEN)
def test_accepted_names_stay_as_they_were_given(check: Check, given: str) -> None:
    assert check("option", given) == given


A_LINK = "a link's name of 1 to 15 letters, digits and _.=+@~-"
A_NETWORK_INTERFACE = "the name of one network interface that leads to other machines, as eth0"
A_PATH = (
    "an absolute path of a file, of letters, digits and _.=+@~:,- without . and .. in it, each name of 200 characters at"
    " most, the last not starting with a dot"
)
REFUSED: list[tuple[Check, str, str]] = [
    *((names.interface, name, A_LINK) for name in ("", ".", "..", "a" * 16, "a/b", "a b", "a:b", "ä", "eni*", "a\n")),
    *((names.interface, name, A_LINK) for name in ('a"b', "a;b", "{a}", "a, b")),
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
def test_an_error_says_what_would_be_accepted(check: Check, given: str, allowed: str) -> None:
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


SIGNS = {
    "\x1b[2J": "\\x1b[2J",
    "\x07\x00\x7f": "\\x07\\x00\\x7f",
    "\x9b31m": "\\x9b31m",
    "a\rb": "a\\rb",
    "\u202etxt\u2066": "\\u202etxt\\u2066",
    "\u2028\ufeff": "\\u2028\\ufeff",
    "\udc80": "\\udc80",
    "\U000e0001": "\\U000e0001",
}


@pytest.mark.parametrize("given", SIGNS)
def test_control_characters_and_direction_marks_are_shown_as_python_escapes_them(given: str) -> None:
    assert printable(given) == in_one_line(given) == SIGNS[given]
    assert printable(printable(given)) == printable(given)


def test_an_error_shows_long_parts_in_part() -> None:
    text = str(Invalid("a" * 10**6, "b" * 10**6, f"one of {'c' * 10**6}"))
    assert len(text) < 6100 and text.endswith("b... was given")


def test_letters_of_all_languages_line_breaks_and_tabs_stay() -> None:
    text = "größe 网络 …\n\tمرحبا"
    assert printable(text) == text
    assert in_one_line(text) == text.replace("\n", "\\n").replace("\t", "\\t")


def test_texts_inside_of_values_are_printable_and_other_values_stay() -> None:
    given = {"eth\x1b0": [("\x07", 1), None, True, 2.5, {"a": "\u202e"}]}
    assert all_printable(given) == {"eth\\x1b0": [["\\x07", 1], None, True, 2.5, {"a": "\\u202e"}]}


def printed(capsys: pytest.CaptureFixture[str], error: str = "", **arguments: object) -> str:
    """What a module prints that has observed hostile texts and, with ``error``, fails with one."""
    testing = pytest.importorskip("ansible.module_utils.testing")
    from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module

    with testing.patch_module_args({"name": "\x9b2J", **arguments}), pytest.raises(SystemExit):
        module = Module({"name": Option("str")})
        with module.reporting(data=("snapshot",)) as result:
            result.update(reason="\u202e", notes=["\x9b"], diff=[{"before": "a\n\tb\x07"}], snapshot={"text": "\x9b"})
            if error:
                raise Failure(error)
    return capsys.readouterr().out


def test_a_result_is_printable_except_the_data_of_programs(capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(printed(capsys))
    assert (result["reason"], result["notes"], result["diff"]) == ("\\u202e", ["\\x9b"], [{"before": "a\n\tb\\x07"}])
    assert result["snapshot"] == {"text": "\x9b"}


def test_an_error_and_the_arguments_that_ansible_shows_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "nft: Error: syntax error\n\x1b]0;gone\x07", _ansible_verbosity=3, _ansible_inject_invocation=True)
    result = json.loads(text)
    assert result["msg"].endswith("nft: Error: syntax error\n\\x1b]0;gone\\x07")
    assert result["invocation"]["module_args"]["name"] == "\\x9b2J"


def test_a_warning_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    basic = pytest.importorskip("ansible.module_utils.basic")
    from ansible_collections.kubenode.datapath.plugins.module_utils._module import Module

    warnings: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _module, warning: warnings.append(warning))
    Module.warn(object.__new__(Module), "eth\x1b[2J")
    assert warnings == ["eth\\x1b[2J"]
