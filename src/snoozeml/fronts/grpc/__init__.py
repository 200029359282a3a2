"""gRPC: calls to bytes, bytes to answers."""
