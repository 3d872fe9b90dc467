# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders on the way to a file that root loads: only root may be able to replace it. On a real file system."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core import names
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Refusal
from ansible_collections.kubenode.datapath.plugins.module_utils._files import folder_guards
from ansible_collections.kubenode.datapath.plugins.module_utils._files.files import Files, MakeFolder
from ansible_collections.kubenode.datapath.plugins.module_utils._files.folder_guards import roots_folders

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="folders are given to other users")


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place that has the folders kubenode and cron.d."""
    path = tmp_path / "etc"
    for name in ("kubenode/deeper", "cron.d"):
        (path / name).mkdir(parents=True)
    monkeypatch.setattr(names, "PLACES", (str(path),))
    return path


def inspect(path: Path) -> None:
    assert list(roots_folders(str(path))) == []


def test_folders_that_only_root_can_write_are_accepted(etc: Path) -> None:
    for path in ("kubenode/x", "kubenode/deeper/x", "kubenode-missing/x", "cron.d/x"):
        inspect(etc / path)


def test_a_folder_of_another_name_must_be_new_or_made_by_the_collection(etc: Path) -> None:
    folder = etc / "acme"
    inspect(folder / "x")
    Files().perform(MakeFolder(str(folder)))
    (folder / "x").write_text("ours")
    inspect(folder / "x")
    (folder / ".kubenode").unlink()
    with pytest.raises(Refusal) as refused:
        inspect(folder / "x")
    assert str(refused.value) == (
        f"{folder}/x may not be written: {folder} exists, and this collection did not make it, so that another program may load"
        f" the files in it. Nothing was changed. Name a folder that does not exist, or {etc}/kubenode-acme"
    )


def test_a_folder_of_another_name_may_not_be_a_link(etc: Path) -> None:
    """Not even to a folder that the collection made."""
    Files().perform(MakeFolder(str(etc / "made")))
    (etc / "acme").symlink_to("made")
    with pytest.raises(Refusal, match="a symbolic link leads from .*/etc/acme to .*/etc/made; a folder is expected"):
        inspect(etc / "acme/x")


@pytest.mark.parametrize(
    ("mode", "owner", "exposure"),
    [
        (0o777, (0, 0), "has mode 0777 and belongs to group 0"),
        (0o757, (0, 0), "has mode 0757 and belongs to group 0"),
        (0o775, (0, 7), "has mode 0775 and belongs to group 7"),
        (0o755, (7, 0), "belongs to user 7"),
        (0o700, (7, 7), "belongs to user 7"),
        (0o775, (0, 0), ""),
        (0o755, (0, 7), ""),
        (0o1777, (0, 0), ""),
    ],
)
@pytest.mark.parametrize("exposed", ["", "kubenode", "kubenode/deeper"])
def test_a_folder_that_another_user_can_write_is_refused_by_its_name(
    etc: Path, exposed: str, mode: int, owner: tuple[int, int], exposure: str
) -> None:
    folder, path = etc / exposed, etc / "kubenode/deeper/x"
    os.chown(folder, *owner)
    folder.chmod(mode)
    if not exposure:
        inspect(path)
        return
    with pytest.raises(Refusal) as refused:
        inspect(path)
    assert str(refused.value) == (
        f"{path} may not be written: {folder} {exposure}, so that a user other than root could replace the file, which root"
        f" loads. Nothing was changed. Examine the files in it, then run: chown root:root {folder} && chmod go-w {folder}"
    )


def test_the_folders_of_links_are_on_the_way(tmp_path: Path, etc: Path) -> None:
    """A user who can write the folder of a link in the middle can let it lead elsewhere."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a/first").symlink_to("../b/second")
    (tmp_path / "b/second").symlink_to(tmp_path / "c")
    way = list(folder_guards.on_the_way(str(tmp_path / "a/first/x")))
    assert way[0] == "/" and {str(tmp_path / name) for name in ("a", "b", "c")} <= {*way}
    (tmp_path / "b").chmod(0o777)
    with pytest.raises(Refusal, match=f"{tmp_path}/b has mode 0777"):
        inspect(tmp_path / "a/first/x")
    (tmp_path / "loop").symlink_to("loop")
    assert len(list(folder_guards.on_the_way(str(tmp_path / "loop/x")))) < 100


LINKS: dict[str, tuple[str, t.Callable[[Path], str]]] = {
    "the folder": ("kubenode-link/x", lambda etc: str(etc / "cron.d")),
    "a folder below it": ("kubenode/link/x", lambda etc: "../cron.d"),
    "a folder above the last": ("kubenode/link/cron.d/x", str),
}


@pytest.mark.parametrize("case", LINKS)
def test_no_link_leads_from_a_folder_of_the_collection_to_another(etc: Path, case: str) -> None:
    path, target = LINKS[case]
    (etc / path.replace("/cron.d", "")).parent.symlink_to(target(etc))
    with pytest.raises(Refusal, match="a symbolic link leads from .*/etc/kubenode.* to .*/etc/cron.d; a folder is expected"):
        inspect(etc / path)


def test_a_link_above_the_folder_is_the_distributions(tmp_path: Path, etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /opt and /srv on a system of ostree."""
    (tmp_path / "opt").symlink_to("etc")
    monkeypatch.setattr(names, "PLACES", (str(tmp_path / "opt"),))
    inspect(tmp_path / "opt/kubenode/x")
