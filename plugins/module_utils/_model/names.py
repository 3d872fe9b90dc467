# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Names that options carry, checked before they reach a file, a script or the kernel."""

from __future__ import annotations

import re

from .problem import Invalid

# include/uapi/linux/if.h: IFNAMSIZ is 16 with the final NUL.
INTERFACE_LENGTH = 15
# include/uapi/linux/netfilter/nf_tables.h: NFT_NAME_MAXLEN is 256; a unit's file name, which contains it, ends at 255.
TABLE_LENGTH = 128
# NAME_MAX is 255; a name gets a prefix and suffixes on its way.
NAME_LENGTH = 200


def interface(option: str, given: str) -> str:
    """A link's name that is also a plain word to nft: no quotes, braces, ``*`` (nft's wildcard), blanks or ``/``."""
    if not re.fullmatch(r"[A-Za-z0-9_.=+@~-]{1,%d}" % INTERFACE_LENGTH, given) or given in (".", ".."):
        raise Invalid(option, given, f"a link's name of 1 to {INTERFACE_LENGTH} letters, digits and _.=+@~-")
    return given


def pattern(option: str, given: str) -> str:
    """A link's name, or the beginning of names with ``*`` after it, as nft takes it: the ``*`` counts as a character."""
    if given.endswith("*") and 1 < len(given) <= INTERFACE_LENGTH:
        interface(option, given[:-1])
        return given
    return interface(option, given)


def table(option: str, given: str) -> str:
    """A table's name as nft's scanner takes it unquoted (an identifier; 0.9.8 has no quoted form)."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,%d}" % (TABLE_LENGTH - 1), given):
        raise Invalid(
            option, given, f"a word of 1 to {TABLE_LENGTH} letters, digits and _.- that starts with a letter or _"
        )
    return given


def is_in_run(path: str) -> bool:
    """Whether a file or folder there is gone after a boot."""
    return f"{path}/".startswith(("/run/", "/var/run/"))


def path(option: str, given: str) -> str:
    """An absolute path that a systemd unit can name without quoting: no blanks, quotes, ``%``, ``$`` or backslashes."""
    names = given.split("/")[1:]
    is_plain = re.fullmatch(r"(/[A-Za-z0-9_.=+@~:,-]+)+", given)
    if not is_plain or {".", ".."} & set(names) or names[-1].startswith(".") or max(map(len, names)) > NAME_LENGTH:
        raise Invalid(
            option,
            given,
            f"an absolute path of a file, of letters, digits and _.=+@~:,- without . and .. in it, each name of {NAME_LENGTH}"
            " characters at most, the last not starting with a dot",
        )
    return given
