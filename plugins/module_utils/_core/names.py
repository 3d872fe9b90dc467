# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of links, paths and settings: those given in options are checked before they reach a file or the kernel."""

from __future__ import annotations

import re
import typing as t

from .errors import Invalid

CLOUDS = ("azure", "aws", "alibaba")  # in the order in which they are asked if the firmware does not name the cloud
ANY_CLOUD = ("auto", *CLOUDS)  # choices of the option cloud
# include/uapi/linux/if.h: IFNAMSIZ is 16 with the final NUL.
INTERFACE_LENGTH = 15
DOTTED = str.maketrans("/.", "./")  # a path below /proc/sys as sysctl(8) prints it
# Where a folder of the collection may be. A boot keeps them, and has them before kubelet starts.
PLACES = ("/etc", "/opt", "/srv", "/var/lib")
# Names in PLACES from which programs of a node take settings or commands, and which a new folder could have. A folder that exists
# is refused on the node, so these are for what an image lacks: its defaults are in /usr, or the program is installed later.
OF_PROGRAMS = """
acpi apk apm conf cron crontabs default dracut init initcpio initramfs-tools kernel openrc periodic pm private runit runlevels
service supervisor sv sysconfig systemd udev
anacrontab crontab crypttab environment ethers exports fstab hosts inittab modules nologin profile securetty sudoers
alternatives apparmor audit gss ipa krb5 ldap pam pki polkit-1 security selinux skel ssh ssl sssd X11 xdg
NetworkManager bind bird chrony conntrackd dhcp dnsmasq ebtables firewalld frr iproute2 iptables ipvsadm keepalived netplan
network networkd-dispatcher nftables openvpn ppp resolvconf strongswan ufw wireguard wpa_supplicant
ansible apache2 apt bin cloud dbus-1 dnf dpkg fluent-bit haproxy httpd iscsi logrotate lvm mdadm multipath nginx opt pacman
puppet rpm rsyslog salt snmp telegraf tuned waagent yum zypp
azure calico cdi cilium cni containerd containers crio docker etcd kube-proxy kubelet kubernetes nvidia-container-runtime
rancher
"""
ALLOWED_FOLDERS = (
    f"in or below a folder that is named kubenode or kubenode-NAME and lies in one of {', '.join(PLACES)}, or directly in a new"
    " folder there with a name of letters, digits, _ and - that no program uses, as /etc/acme"
)
# NAME_MAX is 255; the name of a temporary file has a prefix and suffixes besides.
NAME_LENGTH = 200


def interface(option: str, value: str) -> str:
    """Check a link's name that is also a plain word to nft: no quotes, braces, ``*`` (nft's wildcard), blanks or ``/``."""
    if not re.fullmatch(r"[A-Za-z0-9_.=+@~-]{1,%d}" % INTERFACE_LENGTH, value) or value in (".", ".."):
        raise Invalid(option, value, f"a link's name of 1 to {INTERFACE_LENGTH} letters, digits and _.=+@~-")
    return value


def network_interface(option: str, value: str) -> str:
    """Check a name like ``interface``, for a link by which packets from other machines come in.

    So it is not lo, and not all or default, which mean several links in /proc/sys/net.
    """
    if value in ("all", "default", "lo"):
        raise Invalid(option, value, "the name of one network interface that leads to other machines, as eth0")
    return interface(option, value)


def pattern(option: str, value: str) -> str:
    """Check a link's name, or the beginning of names followed by ``*``. nft counts the ``*`` as a character of the name."""
    if value.endswith("*") and 1 < len(value) <= INTERFACE_LENGTH:
        interface(option, value[:-1])
        return value
    return interface(option, value)


def own_folder(path: str) -> str:
    """Return the folder of the collection that a path is in, as /etc/kubenode or /opt/kubenode-NAME; empty if it is in none.

    No other program looks for files in a folder of that name. Elsewhere in these places many programs execute or load each file
    of a folder: cron, systemd, sudo, the dynamic linker.
    """
    match = re.match(rf"({'|'.join(PLACES)})/kubenode(-[^/]+)?(?=/)", path)
    return match[0] if match else ""


def new_folder(path: str) -> str:
    """Return the folder of a path such as /etc/acme/probe.nft, which the collection may make for its files; empty for another
    path.

    The node decides whether the path is permitted: it is if the folder is missing, or the collection made it (folder_guards).
    """
    match = re.fullmatch(rf"((?:{'|'.join(PLACES)})/([A-Za-z0-9][A-Za-z0-9_-]*))/[^/]*", path)
    return match[1] if match and match[2] not in OF_PROGRAMS.split() and not own_folder(path) else ""


def is_own(path: str) -> bool:
    """Return True for a path that files of the collection may have."""
    return bool(own_folder(path) or new_folder(path))


def own_path(option: str, value: str, beside: t.Collection[str] = ()) -> str:
    """Check a path like ``path``, for a file of the collection. beside: further folders that the file may be in."""
    if not is_own(path(option, value)) and value.rpartition("/")[0] not in beside:
        further = "".join(f"in {folder}, or " for folder in beside)
        raise Invalid(option, value, further + ALLOWED_FOLDERS)
    return value


def boot_path(value: str, is_present: bool, beside: t.Collection[str] = ()) -> str:
    """Check the value of the option ``path``, a file that the next boot loads. Raises Invalid.

    is_present: False for a state that removes files: an earlier version may have written them where no file may be written now.
    beside: folders that the file may be in besides those of the collection.
    """
    return own_path("path", value, beside) if is_present else path("path", value)


def path(option: str, value: str) -> str:
    """Check an absolute path that a systemd unit can name without quoting: no blanks, quotes, ``%``, ``$`` or backslashes."""
    names = value.split("/")[1:]
    is_plain = re.fullmatch(r"(/[A-Za-z0-9_.=+@~:,-]+)+", value)
    if not is_plain or {".", ".."} & set(names) or names[-1].startswith(".") or max(map(len, names)) > NAME_LENGTH:
        raise Invalid(
            option,
            value,
            f"an absolute path of a file, of letters, digits and _.=+@~:,- without . and .. in it, each name of {NAME_LENGTH}"
            " characters at most, the last not starting with a dot",
        )
    return value
