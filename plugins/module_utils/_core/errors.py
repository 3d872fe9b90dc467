# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kinds of error. Each carries one sentence for the operator; a module's main catches the base class once."""

from __future__ import annotations

LONGEST = 2000  # characters that an error shows of each of its parts, which a report may choose


class DatapathError(Exception):
    """Base of every error that the collection raises on purpose. ``str()`` is the sentence that the operator reads."""


class Invalid(DatapathError):
    """An option has a value that cannot be used. Raised before the node is observed.

    option: its name, with the index of a list's entry, as ``probes[1].source``.
    value: the value of the option.
    allowed: what is allowed, as the end of the sentence "must be ...".
    """

    def __init__(self, option: str, value: object, allowed: str) -> None:
        super().__init__(f"{_escaped_text(option)} must be {_escaped_text(allowed)}; {_escaped_text(repr(value))} was given")
        self.option = option
        self._value = value
        self._allowed = allowed

    @property
    def values(self) -> tuple[str, object, str]:
        """Return the arguments of the error, so that another process can raise it again."""
        return self.option, self._value, self._allowed

    def inside(self, option: str) -> Invalid:
        """Return the same error for a value inside another option."""
        return self.renamed(f"{option}.{self.option}")

    def renamed(self, option: str) -> Invalid:
        """Return the same error, for a value that the operator gave under another name."""
        return Invalid(option, self._value, self._allowed)


def _escaped_text(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


class WrongVariables(DatapathError):
    """Variables of a role have values that cannot be used. One line for each, which begins with the variable's name."""


class Refusal(DatapathError):
    """Another owner manages this object, or this is the wrong node. Names the finding and the next step. Nothing was changed."""


class Failure(DatapathError):
    """The kernel, a tool or the file system refused. Names the object and repeats the answer. Nothing was done."""


class MissingProgram(Failure):
    """A program that a twin needs is not installed here. Each front end adds how its users get by without it."""


class Uncertain(Failure):
    """An operation failed and may have been done all the same, for example by a tool that was killed."""


class ForeignChange(DatapathError):
    """An undo found that another program has changed the object since, and left the object unchanged. Names its current state."""


class MissingLibrary(DatapathError):
    """The node lacks a Python library; the controller is asked for it. Raised before anything is changed."""

    def __init__(self, library: str, minimum: str) -> None:
        super().__init__(
            f"{library} {minimum} or newer is not on this node. ansible-playbook carries it over from the controller;"
            " without ansible-playbook, install it on the node"
        )
        self.library = library
        self.minimum = minimum
