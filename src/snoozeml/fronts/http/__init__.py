"""The HTTP front: REST v1, health, metrics."""
