# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of variables that ansible-vault has encrypted one by one."""

from __future__ import annotations

import typing as t

try:
    from ansible.parsing.vault import EncryptedString as Encrypted
except ImportError:  # before ansible-core 2.19
    from ansible.parsing.yaml.objects import AnsibleVaultEncryptedUnicode as Encrypted


def is_in(raw: t.Any) -> bool:
    """Return whether a value that is not templated is encrypted, or one inside it."""
    if isinstance(raw, t.Mapping):
        return any(map(is_in, raw.values()))
    return isinstance(raw, Encrypted) or (isinstance(raw, (list, tuple)) and any(map(is_in, raw)))


def templated(templar: t.Any, raw: t.Any) -> t.Any:
    """Return a templated value with text in place of objects of ansible-core before 2.19. Raises AnsibleError."""
    return _decrypted(templar.template(raw))


def _decrypted(value: t.Any) -> t.Any:
    if isinstance(value, Encrypted):
        return str(value)
    if isinstance(value, t.Mapping):
        return {key: _decrypted(item) for key, item in value.items()}
    return [*map(_decrypted, value)] if isinstance(value, list) else value
