# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What systemd-networkd does to foreign rules and routes, depending on its version and its configuration.

Whenever systemd-networkd configures a link, after a hotplug or a reload, it removes all foreign rules and routes
(src/network/networkd-link.c, link_drop_foreign_config), except rules of protocol kernel and routes of links that it does
not manage.
"""

from __future__ import annotations

import re
import typing as t

from .._platform.sysctl_files import in_order

RULES, ROUTES = "ManageForeignRoutingPolicyRules", "ManageForeignRoutes"
# networkd.conf(5). 249.0 to 249.4 applied the second setting to rules, too (systemd-stable fc88dc0754); both are set.
SINCE = {RULES: 249, ROUTES: 246}
# 248 removes rules (systemd 0b81225e), and so does 247 in some distributions (github.com/systemd/systemd/issues/19106).
RULES_REMOVED_SINCE = 247

# systemd-networkd reads the first networkd.conf in these folders, and all drop-ins.
FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
MAIN_FILES = tuple(f"{folder}/networkd.conf" for folder in FOLDERS)
DROP_IN_FOLDERS = tuple(f"{folder}/networkd.conf.d" for folder in FOLDERS)
# A reboot empties it.
PASSING = "/run/"

PATH = f"{DROP_IN_FOLDERS[0]}/90-kubenode.conf"


class Setting(t.NamedTuple):
    """The value of a key and the file that sets it. ``path`` is empty if no file does, and ``value`` is then the default."""

    value: bool = True
    path: str = ""


def known(version: int | None) -> tuple[str, ...]:
    """Return the keys that a version knows; all keys if the version is unknown.

    networkd ignores an unknown key with a warning.
    """
    return tuple(key for key, since in SINCE.items() if version is None or version >= since)


def has_no_setting(key: str, version: int | None) -> bool:
    """Return whether a version removes foreign rules or routes, and has no setting against it. key: the setting of later ones."""
    return version is not None and {RULES: RULES_REMOVED_SINCE, ROUTES: 0}[key] <= version < SINCE[key]


def why_removed(key: str, version: int | None, setting: Setting) -> str:
    """Return why networkd removes foreign rules or routes, as a clause; empty if it does not. key: the setting about them."""
    if has_no_setting(key, version):
        return f"version {version} has no setting against it before {SINCE[key]}"
    return f"{key} is yes ({setting.path or 'its default'})" if setting.value and key in known(version) else ""


def drop_in(version: int | None) -> str | None:
    """Return the drop-in's text without the heading; None for a version that knows none of the keys."""
    lines = [f"{key}=no\n" for key in known(version)]
    return (
        "".join(["# Keep systemd-networkd from removing rules and routes of other programs.\n[Network]\n", *lines])
        if lines
        else None
    )


def setting(files: t.Mapping[str, str], key: str) -> Setting:
    """Return the setting of a key. files: texts by path. The last line with a valid value wins."""
    main = [path for path in MAIN_FILES if path in files][:1]
    winner = Setting()
    for path in (*main, *in_order(files, DROP_IN_FOLDERS)):
        for value in _values(files[path], key):
            winner = Setting(value, path)
    return winner


def _values(text: str, key: str) -> t.Iterator[bool]:
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line
        name, _equals, value = (part.strip() for part in line.partition("="))
        word = value.lower()
        if section == "[Network]" and name == key and word in _WORDS:
            yield _WORDS[word]


# systemd's parse_boolean().
_WORDS = {
    **dict.fromkeys(("1", "yes", "y", "true", "t", "on"), True),
    **dict.fromkeys(("0", "no", "n", "false", "f", "off"), False),
}


def in_library_name(name: str) -> int | None:
    """Return the version in the name of systemd's library: 252 for ``libsystemd-shared-252.so`` and for ``...-252-14.el9.so``."""
    match = re.fullmatch(r"libsystemd-shared-([0-9]{3})\b.*\.so", name)
    return int(match[1]) if match else None
