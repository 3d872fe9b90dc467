# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Returns a rule that another program has deleted to the kernel at once. A load takes a fifth of a second, and proves it later.

A run of this collection deletes rules while it holds the lock, and has changed the record when it releases it. So nothing is
returned while the lock is held, or without the rule in the record.

The kernel adds the rule behind the others of its priority. Until the load has arranged them, a packet that one of these selects
as well is routed as without the rule, and no worse.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import typing as t

from .._core.errors import DatapathError
from .._files import files
from .._netlink import wire
from .._netlink.attributes import HEADER, message
from .._platform import lock
from .._routing import rule

NEWRULE, EXCL, CREATE = 32, 0x200, 0x400  # include/uapi/linux/rtnetlink.h, netlink.h


class RuleReturns:
    """The backend. port: the netlink port of its requests."""

    def __init__(self) -> None:
        self._socket = wire.open_socket()
        self._socket.bind((0, 0))
        self.port: int = self._socket.getsockname()[0]

    def put_back(self, deletion: bytes, paths: t.Iterable[str]) -> str:
        """Return the rule that is back, as text; empty if it is not.

        deletion: the kernel's message. paths: where the active policy may be; the first file that exists has it.
        """
        body = deletion[HEADER.size :]
        item, _protocol = rule.from_message(body)
        (line,) = rule.texts([item])
        with contextlib.suppress(DatapathError, OSError, ValueError), lock.if_free() as is_held:
            request = message(NEWRULE, EXCL | CREATE, rule.sendable(body))  # the program may have added the rule again by itself
            path = next(filter(os.path.exists, paths), "")
            if is_held and _has_line(path, f"\n  {line}") and not wire.exchange([request], self._socket.dup):
                return str(item)
        return ""


def _has_line(path: str, line: str) -> bool:
    """Return whether a file has a line, without a copy of the file. Raises OSError."""
    with files.regular(path) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as text:
        return text.find(line.encode()) >= 0
