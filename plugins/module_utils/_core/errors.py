# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""What can go wrong, as kinds. Each carries one sentence for the operator; a module's main catches the base class once."""

from __future__ import annotations


class DatapathError(Exception):
    """Base of everything the collection raises on purpose. ``str()`` is the sentence that the operator reads."""


class Invalid(DatapathError):
    """An option whose value can not be used. Raised before the node is looked at.

    option: its name, with the index of a list's entry, as ``probes[1].source``.
    given: the value as it came.
    allowed: what would have been right, as the end of the sentence "must be ...".
    """

    def __init__(self, option: str, given: object, allowed: str) -> None:
        super().__init__(f"{option} must be {allowed}; {given!r} was given")
        self.option = option
        self._given = given
        self._allowed = allowed

    def inside(self, option: str) -> Invalid:
        """The same of a value that another option holds."""
        return Invalid(f"{option}.{self.option}", self._given, self._allowed)


class Refusal(DatapathError):
    """Somebody else runs this place, or it is the wrong place: says what was seen and what to do. Nothing was changed."""


class Failure(DatapathError):
    """The kernel, a tool or the file system said no: names the object and repeats the answer. Nothing was done."""


class Uncertain(Failure):
    """An operation that ended badly and may have been done all the same, as by a tool that was killed."""


class ForeignChange(DatapathError):
    """Taking back, we met what somebody else has changed since, and left it so. Says what it is now."""


class MissingLibrary(DatapathError):
    """The node lacks a Python library; the controller is asked for it. Raised before anything was changed."""

    def __init__(self, library: str, minimum: str) -> None:
        super().__init__(
            f"{library} {minimum} or newer is not on this node. It is carried over from the controller by ansible-playbook;"
            " whoever runs the module without it has to install it here"
        )
        self.library = library
