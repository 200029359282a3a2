"""What is unpacked, and what is refused with nothing written outside the folder."""

import struct
import zipfile
from pathlib import Path

import pytest

from archives import DEVICE, LINK, named, patched, zipped
from snoozeml.core.unpacking import UnpackJob
from snoozeml.errors import InvalidInput, PayloadTooLarge
from snoozeml.prepare.unpack import members
from snoozeml.prepare.unpack.archive import unpack

MIB = 2**20


def unpacked(folder: Path, archive: bytes, most_bytes: int = 2**30) -> dict[str, bytes]:
    """The files that are made of an archive, by their paths."""
    packed, target = folder / "packed.zip", folder / "inner" / "model"
    target.parent.mkdir()
    packed.write_bytes(archive)
    unpack(UnpackJob(archive=str(packed), folder=str(target), most_bytes=most_bytes))
    return contents(target)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"a.onnx": b"1", "sub/b": b"2"}, {"a.onnx": b"1", "sub/b": b"2"}),
        ({"top/a.onnx": b"1", "top/sub/b": b"2"}, {"a.onnx": b"1", "sub/b": b"2"}),
        ({"top/": b"", "top/a": b"1"}, {"a": b"1"}),
        ({"1_Pooling/config.json": b"1", "a": b"2"}, {"1_Pooling/config.json": b"1", "a": b"2"}),
        ({"__MACOSX/._a": b"x", "top/.DS_Store": b"x", "top/a": b"1"}, {"a": b"1"}),
        ({"モデル/é.txt": b"1"}, {"é.txt": b"1"}),
        ({"a": b"", "b": b"x" * 3 * MIB}, {"a": b"", "b": b"x" * 3 * MIB}),
    ],
    ids=["plain", "one top folder", "folder entries", "modules", "macOS", "unicode", "large"],
)
def test_good_archives(tmp_path: Path, files: dict[str, bytes], wanted: dict[str, bytes]) -> None:
    assert unpacked(tmp_path, zipped(files.items())) == wanted


def test_names_that_are_utf8_without_saying_so(tmp_path: Path) -> None:
    unflagged = "é.txt".encode().decode("cp437")
    archive = zipped([("é.txt", b"1")])
    assert archive.count("é.txt".encode()) == 2
    # Without the flag, the name reads as other characters of an old code page.
    header, listing = archive.find(b"PK\x03\x04"), archive.find(b"PK\x01\x02")
    raw = bytearray(archive)
    for at in (header + 6, listing + 8):
        flags = struct.unpack_from("<H", raw, at)[0]
        struct.pack_into("<H", raw, at, flags & ~0x800)
    assert unflagged != "é.txt"
    assert unpacked(tmp_path, bytes(raw)) == {"é.txt": b"1"}


TRAPS = {
    "parent": ("../evil", "'..' is no name"),
    "parent inside": ("a/../../evil", "'..' is no name"),
    "absolute": ("/etc/evil", "it is absolute"),
    "two slashes": ("a//b", "'' is no name"),
    "dot": ("./a", "'.' is no name"),
    "drive": ("C:/evil", "it names a drive"),
    "drive, relative": ("c:evil", "it names a drive"),
    "backslash": ("..\\evil", "a backslash"),
    "NUL": ("evil\0.onnx", "a control character"),
    "line break": ("evil\n.onnx", "a control character"),
    "long": ("x" * 256, "longer than 255 bytes"),
    "deep": ("/".join("x" * 17), "too deep"),
    "long path": ("/".join(["x" * 200] * 6), "too long"),
    "empty": ("", "'' is no name"),
}


@pytest.mark.parametrize(("name", "why"), TRAPS.values(), ids=TRAPS.keys())
def test_names_that_lead_elsewhere(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(InvalidInput, match="which is refused") as refusal:
        unpacked(tmp_path, zipped([(named(name), b"x"), ("fine", b"x")]))
    assert why in refusal.value.message
    assert not (tmp_path / "inner" / "model").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"inner", "packed.zip"}


@pytest.mark.parametrize("mode", [LINK, DEVICE, 0o010644, 0o140644, 0o060644, 0o040755])
def test_what_is_neither_file_nor_folder(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidInput, match="neither a regular file nor a folder"):
        unpacked(tmp_path, zipped([(named("model.onnx", mode=mode), b"/etc/passwd")]))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "names",
    [("a", "a"), ("a", "A"), ("é", "e\u0301"), ("ß", "ss"), ("a", "a/b"), ("a/b", "A/c"),
     ("x/y/a", "X/y/b"), ("a/b", "a")],
)  # fmt: skip
def test_names_of_which_two_may_be_one(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(InvalidInput, match="is there"):
        unpacked(tmp_path, zipped([(name, b"x") for name in (*names, "root")]))


def test_encrypted_files(tmp_path: Path) -> None:
    plain = zipped([("secret", b"x")])
    listing = plain.find(b"PK\x01\x02")
    encrypted = bytearray(plain)
    encrypted[listing + 8] |= 1
    with pytest.raises(InvalidInput, match="'secret', which is refused: it is encrypted"):
        unpacked(tmp_path, bytes(encrypted))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions(tmp_path: Path, method: int) -> None:
    info = named("a")
    info.compress_type = method
    with pytest.raises(InvalidInput, match="compressed otherwise than by deflate"):
        unpacked(tmp_path, zipped([(info, b"x")]))


def test_too_many_files(tmp_path: Path) -> None:
    archive = zipped((str(number), b"") for number in range(members.MOST_MEMBERS + 1))
    with pytest.raises(PayloadTooLarge, match="holds 10001 files, and 10000 is the limit"):
        unpacked(tmp_path, archive)


def test_too_much_inflated(tmp_path: Path) -> None:
    archive = zipped([("a", bytes(MIB)), ("b", bytes(MIB))])
    with pytest.raises(PayloadTooLarge, match=f"unpacks to {2 * MIB} bytes, more than the limit"):
        unpacked(tmp_path, archive, most_bytes=2 * MIB - 1)


def test_too_much_for_its_size(tmp_path: Path) -> None:
    archive = zipped([("a", bytes(65 * MIB))])
    with pytest.raises(PayloadTooLarge, match="100 times its size is the limit"):
        unpacked(tmp_path, archive)


def test_an_archive_that_says_less_than_it_holds(tmp_path: Path) -> None:
    archive = zipped([("a", bytes(MIB))])
    lying = patched(archive, struct.pack("<I", MIB), struct.pack("<I", 1000))
    with pytest.raises(InvalidInput, match="damaged"):
        unpacked(tmp_path, lying)
    assert sum(map(len, contents(tmp_path / "inner").values())) <= 1000


def test_an_archive_that_says_more_than_it_holds(tmp_path: Path) -> None:
    archive = zipped([("a", b"x" * 100)])
    lying = patched(archive, struct.pack("<I", 100), struct.pack("<I", 1000))
    with pytest.raises(InvalidInput, match="damaged"):
        unpacked(tmp_path, lying)


def test_a_file_that_begins_before_the_archive(tmp_path: Path) -> None:
    archive = zipped([("a", b"x"), ("b", b"y")])
    with pytest.raises(InvalidInput, match="'a', which is refused: it is said to begin before"):
        unpacked(tmp_path, archive[1:])


@pytest.mark.parametrize("content", [b"", b"PK", b"x" * 1000, zipped([])])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"no zip archive|is empty"):
        unpacked(tmp_path, content)


def test_every_part_of_an_archive(tmp_path: Path) -> None:
    archive = zipped([("a.onnx", b"x" * 50), ("b", b"y")])
    for end in range(0, len(archive) - 1, 7):
        folder = tmp_path / str(end)
        folder.mkdir()
        with pytest.raises(InvalidInput):
            unpacked(folder, archive[:end])
