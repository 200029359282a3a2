"""Python models: code of the user's own, in this process or in an interpreter of its own."""
