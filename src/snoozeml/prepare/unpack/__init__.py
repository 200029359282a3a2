"""The unpack process: takes a folder out of an archive that a stranger made."""
