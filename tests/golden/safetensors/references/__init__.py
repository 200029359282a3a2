"""The models that golden files are made of, one module per family."""
