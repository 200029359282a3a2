"""`python -m snoozeml` is the `snooze` command."""

from snoozeml.cli import main

main()
