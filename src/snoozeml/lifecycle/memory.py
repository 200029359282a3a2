"""What a process costs, as the kernel counts it."""

from pathlib import Path


def proportional_bytes(pid: int) -> int | None:
    """Proportional set size: private memory plus this process's share of what it shares.

    This is what the machine gets back when the process ends, but for pages that stay cached.

    Returns:
        bytes; None when the process is gone or the system (macOS) has no such figure.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return None
