"""The messages of gRPC: the `.proto` files, and what `make proto` generates of them."""
