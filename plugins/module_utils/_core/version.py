# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions as upstream counts them: numbers with dots, without a distribution's additions. The version of this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import Invalid

COLLECTION = "1.0.0"  # as in galaxy.yml, which is not on a node

_NUMBERS = r"[0-9]{1,9}(?:\.[0-9]{1,9})*"
_WANTED = re.compile(_NUMBERS)
_OF_PACKAGE = re.compile(rf"(?:[0-9]+:)?({_NUMBERS})")  # epoch:upstream-revision: deb-version(7), RPM's EVR
_OF_NFT = re.compile(rf"^nftables v({_NUMBERS})", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Version:
    """Ordered by its numbers; 1.1 and 1.1.0 are equal. ``text`` is the version as it was written."""

    numbers: tuple[int, ...]
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text


def wanted(option: str, value: str) -> Version:
    """Parse the version in an option. Raises Invalid."""
    if not _WANTED.fullmatch(value):
        raise Invalid(option, value, 'a version of digits and dots, as "0.9.8"')
    return _version(value)


def of_package(text: str) -> Version | None:
    """Return the upstream version in a package's: 1.0.6 of ``1.0.6-2+deb12u2``, 1.0.9 of ``1:1.0.9-2.azl3``."""
    match = _OF_PACKAGE.match(text)
    return _version(match[1]) if match else None


def of_nft(text: str) -> Version | None:
    """Return the version in ``nft --version``: 1.0.6 of ``nftables v1.0.6 (Lester Gooch #5)``."""
    match = _OF_NFT.search(text)
    return _version(match[1]) if match else None


def _version(text: str) -> Version:
    numbers = [int(number) for number in text.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return Version(tuple(numbers), text)
