# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An archive of a reporter is read within bounds. No link is followed, no device is opened, and nothing is written. Errors name
the member."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Invalid
from ansible_collections.kubenode.datapath.plugins.module_utils._pastes import archive_backend

RULE = "0:\tfrom all lookup local\n"
NAME = "top/iprule.txt"
MOST = 1 << 16
RECORD = b"PK\x05\x06"  # at the end of a zip
Make = Callable[[], bytes]
Members = dict[str, "bytes | tarfile.TarInfo"]


def tar(members: Members, mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            header = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                header.size = len(content)
            archive.addfile(header, io.BytesIO(content) if isinstance(content, bytes) else None)
    return file.getvalue()


def zipped(members: dict[str, bytes], mode: int = 0) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            header = zipfile.ZipInfo(name)
            header.external_attr = mode << 16
            archive.writestr(header, content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, target
    return header


def special(kind: bytes, target: str = "", name: str = NAME) -> bytes:
    return tar({name: link(name, target, kind)})


def encrypted() -> bytes:
    content = bytearray(zipped({NAME: RULE.encode()}))
    content[6] |= 1  # of the member's own header, and of the list at the end
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def with_long_name() -> bytes:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    return gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def with_sparse_file() -> bytes:
    """A file of the format of GNU, whose map goes on in further blocks."""
    header = bytearray(tarfile.TarInfo("top/other").tobuf(tarfile.GNU_FORMAT))
    header[156:157], header[482] = tarfile.GNUTYPE_SPARSE, 1
    header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * ord(" "))
    return gzip.compress(bytes(header) + (bytes(504) + b"\1" + bytes(7)) * 1000 + bytes(1024))


def with_sparse_map() -> bytes:
    """A file of version 1.0 of the format of POSIX, whose map is in its content."""
    attributes = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x", "GNU.sparse.realsize": "1"}
    header = tarfile.TarInfo("top/other")
    header.pax_headers, header.size = attributes, 1 << 20
    return gzip.compress(header.tobuf(tarfile.PAX_FORMAT) + b"999999\n" + b"0\n1\n" * (1 << 18) + bytes(1024))


def with_endless_file() -> bytes:
    header = tarfile.TarInfo("top/other")
    header.pax_headers = {"size": "9" * 20}
    return gzip.compress(header.tobuf(tarfile.PAX_FORMAT) + bytes(1024))


def compressed(method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(NAME, bytes(1 << 20))
    return file.getvalue()


def with_record_in_record() -> bytes:
    """A list of 50 members, whose record has the signature of a second record in its field for the list's place."""
    content = bytearray(of_many())
    content[-6:-2] = RECORD
    return bytes(content)


def with_zip64() -> bytes:
    """A list of 50 members, whose size is in a record of zip64. The other record has an empty list."""
    content = of_many()
    record, count, size, place = len(content) - 22, *struct.unpack_from("<HII", content, len(content) - 12)
    zip64 = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, place)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, record, 1)
    return content[:record] + zip64 + locator + RECORD + bytes(18)


def of_many() -> bytes:
    return zipped({NAME: RULE.encode(), **{f"file{number}": b"" for number in range(49)}})


def read(folder: Path, content: bytes) -> archive_backend.Files:
    path = folder / "bundle"
    path.write_bytes(content)
    return archive_backend.read(str(path), lambda name: MOST * name.endswith("iprule.txt"))


@pytest.mark.parametrize(
    "content",
    [
        *(tar({f"./{NAME}": RULE.encode(), "top/other": b"x"}, mode) for mode in ("w", "w:gz", "w:xz")),
        zipped({NAME: RULE.encode(), "top/other": b"x"}),
        lzma.compress(tar({NAME: RULE.encode()}, "w"), preset=9),
        gzip.compress(tar({NAME: RULE.encode()}, "w")) + gzip.compress(b""),
    ],
    ids=["tar", "gz", "xz", "zip", "xz of the highest level", "gz of two streams"],
)
def test_the_files_that_are_wanted_are_read_from_each_kind(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == ({f"bundle/{NAME}": RULE}, {}, [], {})


@pytest.mark.parametrize("outer", [lambda name, inner: tar({name: inner}), lambda name, inner: zipped({name: inner})])
@pytest.mark.parametrize("inner", [tar({NAME: RULE.encode()}), tar({NAME: RULE.encode()}, "w:xz"), zipped({NAME: RULE.encode()})])
def test_an_archive_within_the_archive_is_read(tmp_path: Path, outer: Callable[[str, bytes], bytes], inner: bytes) -> None:
    name = "node1.zip" if inner.startswith(b"PK") else "node1.tar.gz"
    assert read(tmp_path, outer(name, inner)).texts == {f"bundle/{name}/{NAME}": RULE}
    twice = read(tmp_path, outer("nodes.tar.gz", tar({name: inner})))
    assert twice == ({}, {}, [f"bundle/nodes.tar.gz/{name}"], {})


@pytest.mark.parametrize(
    ("content", "member", "reason"),
    [
        (tar({"../iprule.txt": b""}), r"\.\./iprule\.txt", "members are inside"),
        (zipped({"a/../../iprule.txt": b""}), r"a/\.\./\.\./iprule\.txt", "members are inside"),
        (tar({"/etc/iprule.txt": b""}), "etc/iprule.txt", "members are inside"),
        (special(tarfile.SYMTYPE, "/etc/passwd", "nodes.tar.gz"), "nodes.tar.gz", "which is a symbolic link"),
        (special(tarfile.LNKTYPE, "/etc/passwd"), NAME, "which is a hard link"),
        (special(tarfile.CHRTYPE), NAME, "which is a device or a FIFO"),
        (special(tarfile.FIFOTYPE), NAME, "which is a device or a FIFO"),
        (encrypted(), NAME, "which is encrypted"),
        (with_sparse_file(), "top/other", "without sparse files"),
        (with_endless_file(), "bundle/top/other", f"a member of at most {archive_backend.MOST_BYTES} bytes"),
        (with_sparse_map(), "top/other", "without sparse files"),
        (compressed(zipfile.ZIP_BZIP2), NAME, "compressed by another method than deflate"),
        (compressed(zipfile.ZIP_LZMA), NAME, "compressed by another method than deflate"),
        (tar({"a/" * 65 + "x": b""}), "bundle/a", "at most 4096 characters and 64 folders"),
        (zipped({"a" * 4097: b""}), "bundle/aa", "at most 4096 characters and 64 folders"),
        (tar({NAME: RULE.encode() * 9999})[:200], "bundle", "whole archive"),
        (tar({NAME: RULE.encode() * 9999}, "w:xz")[:200], "bundle", "whole archive"),
        (zipped({NAME: RULE.encode() * 99})[:-30], "bundle", "whole archive"),
        (b"no archive", "bundle", "whole archive"),
        (b"", "bundle", "whole archive"),
        (with_long_name(), "LongLink", f"at most {archive_backend.LARGEST_NAME} bytes"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,  # an archive contains the time
)
def test_a_hostile_archive_is_refused_by_the_name_of_its_member(tmp_path: Path, content: bytes, member: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as error:
        read(tmp_path, content)
    assert error.match(member) and {*os.listdir(tmp_path)} == {"bundle"}


def test_a_device_or_fifo_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in ("/dev/zero", str(tmp_path / "fifo")):
        with pytest.raises(Invalid, match="^dump must be a folder or archive; "):
            archive_backend.read(path, lambda _path: MOST)


def test_hundreds_of_links_that_are_not_wanted_are_left_alone(tmp_path: Path) -> None:
    """A bundle of sos has those below etc/systemd/system."""
    members: Members = {name: link(name, "/etc/passwd") for name in (f"top/wants/{number}.service" for number in range(300))}
    members[NAME] = RULE.encode()
    assert read(tmp_path, tar(members)) == ({f"bundle/{NAME}": RULE}, {}, [], {})


LINK = "top/linked/ip6iprule.txt"


@pytest.mark.parametrize("target", ["../iprule.txt", "./../../top/iprule.txt"])
def test_a_link_has_the_text_of_a_file_that_is_read_too(tmp_path: Path, target: str) -> None:
    members: Members = {NAME: RULE.encode(), LINK: link(LINK, target)}
    for in_order in (members, dict(reversed(members.items()))):
        assert read(tmp_path, tar(in_order)) == ({f"bundle/{NAME}": RULE, f"bundle/{LINK}": RULE}, {}, [], {})


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../other", "../../../../etc/passwd", "../second/iprule.txt", "ip6iprule.txt", "."]
)
def test_a_link_to_what_is_not_read_is_not_followed_and_is_named(tmp_path: Path, target: str) -> None:
    """A link to a link, also to itself, is no file either."""
    second = "top/second/iprule.txt"
    members: Members = {LINK: link(LINK, target), "top/other": b"x", NAME: RULE.encode(), second: link(second, "../iprule.txt")}
    files = read(tmp_path, tar(members))
    assert files.texts[f"bundle/{LINK}"] == archive_backend.CUT and files.links == {f"bundle/{LINK}": target}


def test_a_link_of_a_zip_is_not_followed(tmp_path: Path) -> None:
    files = read(tmp_path, zipped({NAME: b"/etc/passwd"}, mode=0o120777))
    assert files == ({f"bundle/{NAME}": archive_backend.CUT}, {}, [], {f"bundle/{NAME}": ""})


@pytest.mark.parametrize("target", ["/dev/null", "../../dev/null"])
def test_a_link_that_masks_a_file_is_an_empty_file(tmp_path: Path, target: str) -> None:
    """sos makes links relative."""
    assert read(tmp_path, tar({LINK: link(LINK, target)})) == ({f"bundle/{LINK}": ""}, {}, [], {})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bounds that a test reaches in no time."""
    bounds = {
        **{"MOST_MEMBERS": 5, "MOST_FILES": 3, "MOST_BYTES": 1 << 21, "MOST_KEPT": 1 << 17, "LARGEST_ZIP": 1 << 16},
        **{"FREE_OF_RATIO": 1 << 19},
    }
    for name, number in bounds.items():
        monkeypatch.setattr(archive_backend, name, number)
    yield


@pytest.mark.parametrize(
    ("content", "member", "bound"),
    [
        (lambda: tar({f"file{number}": b"" for number in range(6)}), "file5", "at most 5 members"),
        (lambda: zipped({f"file{number}": b"" for number in range(6)}), "file5", "at most 5 members"),
        (lambda: tar({"top/zeros": bytes(1 << 20)}), "top/zeros", "400 times its size"),
        (lambda: tar({"top/zeros": bytes(1 << 20)}, "w:xz"), "top/zeros", "400 times its size"),
        (lambda: zipped({"nodes.tar": tar({"zeros": bytes(1 << 20)}, "w")}), "nodes.tar/zeros", "400 times its size"),
        (lambda: tar({name: os.urandom(3 << 19) for name in "ab"}), "bundle/b", f"at most {1 << 21} bytes when unpacked"),
        (lambda: tar({"nodes.zip": b"PK\x03\x04" + os.urandom(1 << 17)}), "nodes.zip", f"a zip of at most {1 << 16} bytes"),
        (lambda: tar({f"{number}/iprule.txt": b"" for number in range(4)}), "3/iprule.txt", "one of at most 3 outputs"),
        (
            lambda: tar({"nodes.tar": tar({f"{number}.tar": b"" for number in range(4)}, "w")}),
            "3.tar",
            "at most 3 outputs and inner archives",
        ),
        (
            lambda: tar({f"top{number}/iprule.txt": os.urandom(1 << 16) for number in range(3)}),
            "top2/iprule.txt",
            f"outputs of at most {1 << 17} bytes together",
        ),
        (
            lambda: tar({NAME: os.urandom(1 << 16), **{f"{n}/iprule.txt": link(f"{n}/iprule.txt", f"../{NAME}") for n in "ab"}}),
            "b/iprule.txt",
            f"outputs of at most {1 << 17} bytes together",
        ),
    ],
)
@pytest.mark.usefixtures("small")
def test_an_archive_has_bounds_that_an_error_names(tmp_path: Path, content: Make, member: str, bound: str) -> None:
    with pytest.raises(Invalid, match=bound) as error:
        read(tmp_path, content())
    assert error.match(member)


@pytest.mark.parametrize("made", [of_many, with_record_in_record, with_zip64])
def test_the_list_of_a_zip_has_a_bound_by_whichever_record_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[], bytes]
) -> None:
    monkeypatch.setattr(archive_backend, "LARGEST_DIRECTORY", 1000)
    with pytest.raises(Invalid, match="a zip whose list of members has at most 1000 bytes"):
        read(tmp_path, made())


def test_the_list_of_a_zip_is_read_by_its_record_of_zip64(tmp_path: Path) -> None:
    assert read(tmp_path, with_zip64()).texts == {f"bundle/{NAME}": RULE}


@pytest.mark.usefixtures("small")
def test_a_file_that_is_too_long_is_cut_at_a_line_and_named(tmp_path: Path) -> None:
    for content in (tar({NAME: RULE.encode() * 4000}), zipped({NAME: RULE.encode() * 4000})):
        files = read(tmp_path, content)
        text = files.texts[f"bundle/{NAME}"]
        assert files.cut == {f"bundle/{NAME}": MOST} and text.endswith(f"{RULE}...\n") and len(text) <= MOST + 5


def test_a_folder_is_read_with_its_folders_and_without_links_to_others(tmp_path: Path) -> None:
    (tmp_path / "report/networking").mkdir(parents=True)
    (tmp_path / "report/networking/iprule.txt").write_text(RULE)
    (tmp_path / "secret").write_text("x")

    def wanted(path: str) -> int:
        return MOST * path.endswith("rule.txt")

    texts = {"report/networking/iprule.txt": RULE}
    assert archive_backend.folder(str(tmp_path / "report"), wanted) == (texts, {}, [], {})
    (tmp_path / "report/networking/ip4rule.txt").symlink_to("iprule.txt")
    (tmp_path / "report/networking/ip6rule.txt").symlink_to(tmp_path / "secret")
    texts |= {"report/networking/ip4rule.txt": RULE, "report/networking/ip6rule.txt": archive_backend.CUT}
    links = {"report/networking/ip6rule.txt": str(tmp_path / "secret")}
    assert archive_backend.folder(str(tmp_path / "report"), wanted) == (texts, {}, [], links)
