# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The services on a node that replace or flush rulesets: nftables.service and firewalld."""

from __future__ import annotations

NFTABLES, FIREWALLD = "nftables.service", "firewalld.service"
# The configuration that nftables.service loads, in Debian and in RHEL.
NFTABLES_FILES = ("/etc/nftables.conf", "/etc/sysconfig/nftables.conf")
FIREWALLD_FILE = "/etc/firewalld/firewalld.conf"
# firewalld.conf(5), with their defaults.
SYNONYMS = {"true": "yes", "false": "no"}  # in any case (firewalld, src/firewall/core/io/firewalld_conf.py)
DEFAULTS = {"FirewallBackend": "nftables", "FlushAllOnReload": "yes", "IPv6_rpfilter": "yes"}


def of_firewalld(text: str) -> dict[str, str]:
    """Return the settings of firewalld.conf that decide about packets."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.lstrip().startswith(("#", ";")))
    values = {name.strip(): value.strip().lower() for name, value in pairs}
    return {name: SYNONYMS.get(values.get(name, ""), values.get(name)) or usual for name, usual in DEFAULTS.items()}


def flushes(text: str) -> bool:
    """Return whether a ruleset's text flushes all tables."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return any(line.startswith("flush ruleset") for line in lines)
