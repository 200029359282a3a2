"""Bytes to values and back: worker frames and the dialects' codecs."""
