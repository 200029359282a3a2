"""Translators from a transport to `infer()`; no policy."""
