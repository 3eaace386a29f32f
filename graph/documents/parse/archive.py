"""Files that are ZIP archives (.docx, .pptx, .xlsx, .epub): their central directory is checked before anything is unpacked.

A part is read only up to its size in the central directory, so that nothing larger is ever unpacked.
"""

from io import BytesIO
from zipfile import BadZipFile, ZipFile

from graph.documents.parse.formats import MAX_PARTS, MAX_UNPACKED_BYTES, MIB
from graph.errors import UserError

MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
"""The XML namespace of alternative contents in Office files."""
OLE = bytes.fromhex("d0cf11e0a1b11ae1")
"""The first bytes of Office files that are encrypted or older than .docx."""
_XML = (".xml", ".rels", ".vml")
_DOCTYPE = tuple("<!DOCTYPE".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))
_ENCRYPTED = 1


def open_archive(data: bytes, file: str) -> ZipFile:
    """The archive; UserError naming `file` if it is not a readable archive, is encrypted, or has too many parts or unpacked bytes."""
    if data.startswith(OLE):
        expected = "an unencrypted file in a format of Office 2007 or later"
        remedy = "save it in such a format, without a password"
        raise UserError(f"{file}: encrypted, or from before Office 2007", expected, remedy)
    try:
        archive = ZipFile(BytesIO(data))
    except BadZipFile as problem:
        suffix = file.rpartition(".")[2]
        raise UserError(f"{file}: not a readable {suffix} file ({problem})", "a ZIP archive", "repair it") from None
    parts = archive.infolist()
    if len(parts) > MAX_PARTS:
        raise UserError(f"{file}: {len(parts):,} parts", f"at most {MAX_PARTS:,}", "split the file, or remove it")
    if any(part.flag_bits & _ENCRYPTED for part in parts):
        raise UserError(f"{file}: encrypted", "an unencrypted file", "save it without a password")
    unpacked = sum(part.file_size for part in parts)
    if unpacked > MAX_UNPACKED_BYTES:
        found = f"{file}: {len(data) / MIB:,.1f} MiB, {unpacked / MIB:,.0f} MiB when unpacked"
        raise UserError(found, f"at most {MAX_UNPACKED_BYTES // MIB:,} MiB", "split the file, or remove it")
    return archive


def check_office(data: bytes, file: str) -> None:
    """UserError as in `open_archive`, and for XML with a document type; BadZipFile as in `part_of`.

    Office files have no document types (ECMA-376-2 §8.1.4); attacks with XML entities need one.
    """
    with open_archive(data, file) as archive:
        for part in archive.infolist():
            content = part_of(archive, part.filename)
            if part.filename.lower().endswith(_XML) and any(doctype in content for doctype in _DOCTYPE):
                found = f"{file}: {part.filename} declares a document type"
                raise UserError(found, "plain Office XML", "remove the file: it may be an attack")


def part_of(archive: ZipFile, name: str) -> bytes:
    """The bytes of a part; BadZipFile if they are damaged or longer than the central directory says.

    `ZipFile.read` would unpack everything first.
    """
    part = archive.getinfo(name)
    with archive.open(part) as stream:
        content = stream.read(part.file_size)
        stream.read(1)
    return content
