"""Uploads as clients send them, and what is left of them on disk."""

from pathlib import Path

from e2e.client import Reply
from e2e.daemon import Daemon

BOUNDARY = "------------------------d74496d66958873e"
HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
TARGET = "/v1/models/upload"


def form(content: bytes, file_name: str, **fields: str) -> bytes:
    """A form with a file and texts, the way that curl writes it."""
    parts = [_part(f'name="{name}"', text.encode()) for name, text in fields.items()]
    parts.append(_part(f'name="file"; filename="{file_name}"', content))
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def _part(disposition: str, content: bytes) -> bytes:
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"
    return head.encode() + content + b"\r\n"


def upload(daemon: Daemon, content: bytes, file_name: str, **fields: str) -> Reply:
    return daemon.request("POST", TARGET, form(content, file_name, **fields), HEADERS)


def drafts(models_dir: Path) -> list[Path]:
    """The folders of all uploads, those under way and those that are models now."""
    folder = models_dir / ".uploads"
    return sorted(folder.iterdir()) if folder.exists() else []


def left_over(models_dir: Path, cache_dir: Path) -> set[str]:
    """All that lies in the models folder and the cache; the empty folders of both do not count."""
    found = (path for folder in (models_dir, cache_dir) for path in folder.rglob("*"))
    kept = {cache_dir / "lock"}
    return {str(path) for path in found if path not in kept and not path.is_dir()}
