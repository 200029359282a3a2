"""Text that nobody may see."""


class Secret:
    """A key or a password on its way to where it is needed.

    Printing it, logging it or formatting it shows `<secret>`; `reveal` is easy to search for.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    __hash__ = None  # type: ignore[assignment]  # a secret is no key of a table

    def __repr__(self) -> str:
        return "<secret>"
