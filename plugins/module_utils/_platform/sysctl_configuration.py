# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Reads the files that set the kernel's settings at the next boot."""

from __future__ import annotations

import typing as t
from pathlib import Path

from .._files import files
from .sysctl_files import FOLDERS, LAST_OF_PROCPS


def configuration(warn: t.Callable[[str], None]) -> dict[str, str]:
    """Return all files that systemd-sysctl or ``sysctl --system`` may read: texts by path.

    A file that cannot be read is left out.

    warn: called with a sentence for each path that is not a regular file, so that these programs may block on it.
    """
    paths = [path for folder in FOLDERS for path in sorted(Path(folder).glob("[!.]*.conf"))]
    return {str(path): text for path in (*paths, Path(LAST_OF_PROCPS)) for text in _text(path, warn)}


def _text(path: Path, warn: t.Callable[[str], None]) -> t.Iterator[str]:
    try:
        yield files.text(str(path), errors="surrogateescape")
    except files.NotRegular as error:
        if not path.is_dir():
            warn(
                f"{path} was not read: {error.strerror}. systemd-sysctl, which sets the permanent plane at the next boot, may"
                " wait for it forever, or fail. Remove it."
            )
    except OSError:
        return
