# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A script of the shell that prints what an audit reads of a node, for nodes without Python, such as Bottlerocket and Talos."""

from __future__ import annotations

from .._cni import cni
from .._routing import policy
from .._snapshot import firewalls, proc_net, settings
from . import commands, node_files

OF_PODS = ("-d addr", "rule", "-6 rule", "route show table all", "-6 route show table all", "neigh", "-6 neigh")  # words for ip
# Each prints all of a kind, and is left out where it fails.
OUTPUTS = (
    "ip -d addr",
    "ip rule",
    "ip -6 rule",
    "ip route show table all",
    "ip -6 route show table all",
    "ip neigh",
    "ip -6 neigh",
    "ip nexthop",
    "nft list ruleset",
    "iptables-save",
    "ip6tables-save",
    "ebtables-save",
    "bpftool net",
    "cat /proc/net/ip_tables_names",
    "cat /proc/net/ip6_tables_names",
    "cat /proc/modules",
    *(f"ip -all netns exec ip {words}" for words in OF_PODS),
)
# These load a module of the kernel, unless it is there. Where it is not, there is nothing to print.
IF_THERE = {
    "ipset save": "/sys/module/ip_set",
    "ipvsadm -Ln": "/proc/net/ip_vs",
    "iptables-legacy-save": "/proc/net/ip_tables_names",
    "ip6tables-legacy-save": "/proc/net/ip6_tables_names",
}
FILES = (
    *(path for part in (settings.SYSCTL, settings.NETWORKD) for path in node_files.all_of(part)),
    *(*proc_net.COUNTERS, proc_net.TRACKING, proc_net.ROUTING, *node_files.LISTENERS),
    *(*firewalls.NFTABLES_FILES, firewalls.FIREWALLD_FILE),
    *(f"{folder}/{policy.RECORD_FILES}" for folder in policy.RECORD_FOLDERS),
)
UNITS = (firewalls.NFTABLES, firewalls.FIREWALLD, node_files.OWN_UNITS)
_SCRIPT = r"""#!/bin/sh
# Prints what an audit and a trace of kubenode-datapath read of this node, and changes nothing. Run it as root on the node:
#   sh commands.sh > node.txt
# and read its output elsewhere:
#   kubenode-datapath audit node.txt
# It needs ip, and uses nft, iptables, ebtables, ipset, ipvsadm, bpftool, tc, sysctl and systemctl where the node has them.
# Of CNI configurations it prints names and types alone, as the rest may contain secrets, and of settings no keys.
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
host=$(hostname 2>/dev/null || cat /proc/sys/kernel/hostname)

keys='secret|_key'  # in names of settings

prompt() { printf 'root@%s:~# %s\n' "$host" "$*"; }

show() {
    output=$("$@" 2>/dev/null) || return 0
    prompt "$*"
    [ -z "$output" ] || printf '%s\n' "$output"
}

files() {
    prompt "head -v -n 99999 $1"
    for path in $1; do
        [ -f "$path" ] && [ -r "$path" ] || continue
        case $(readlink -f "$path") in *.conf | *.conflist | *.json | /proc/*) ;; *) continue ;; esac
        printf '%s==> %s <==\n' '@MARK@' "$path"
        $2 "$path"
    done
}

whole() { { cat "$1"; echo; } | grep -vE "$keys" | sed 's/^/@MARK@/'; }
types() { grep -oE '"(name|type)" *: *"[^"]*"' "$1" | sed 's/^/@MARK@/'; }

@OUTPUTS@
prompt sysctl -a
sysctl -a 2>/dev/null | grep -vE "$keys"
@IF_THERE@
for link in /sys/class/net/*; do
    show tc filter show dev "${link##*/}" ingress
    show tc filter show dev "${link##*/}" egress
done
for space in /run/docker/netns/*; do
    [ "${space##*/}" != default ] || continue  # the node's own
    for words in @OF_PODS@; do
        output=$(nsenter --net="$space" ip $words 2>/dev/null) || continue
        prompt "ip netns exec docker-${space##*/} ip $words"
        printf '%s\n' "$output"
    done
done
show systemctl show --property=Id,LoadState,ActiveState,SubState,UnitFileState,Result @UNITS@
@FILES@
files '@CNI@/*' types
"""
_IF = "if [ -e {place} ]; then show {command}; else prompt {command}; fi"


def script() -> str:
    """Return the script."""
    parts = {
        "MARK": commands.MARK,
        "OUTPUTS": "\n".join(f"show {command}" for command in OUTPUTS),
        "IF_THERE": "\n".join(_IF.format(place=place, command=command) for command, place in IF_THERE.items()),
        "OF_PODS": " ".join(f"'{words}'" for words in OF_PODS),
        "UNITS": " ".join(f"'{unit}'" for unit in UNITS),
        "FILES": "\n".join(f"files '{pattern}' whole" for pattern in FILES),
        "CNI": cni.FOLDER,
    }
    text = _SCRIPT
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text
