"""SnoozeML: an inference daemon whose models sleep until somebody asks."""

__version__ = "0.1.0"
