"""A model's config.json, read with errors that name file and key."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

import msgspec

from snoozeml.errors import ModelFailed, UnsupportedArchitecture

_Value = TypeVar("_Value", int, float, str, bool)

_KINDS: Final = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}

_LARGEST: Final = 1 << 24  # well above any vocabulary
_Whole = Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]


class Config:
    """Settings of a model; a key that is missing or null has its default, if there is one.

    Args:
        where: how the settings are called in errors.
    """

    def __init__(self, settings: dict[str, Any], where: str = "config.json") -> None:
        self._settings: Final = settings
        self._where: Final = where

    @classmethod
    def read(cls, file: Path, name: str | None = None) -> Self:
        """Settings in a file.

        Args:
            name: how it is called in errors, if it is not the only file of its name.

        Raises:
            ModelFailed: the file is missing or holds no JSON object.
        """
        name = file.name if name is None else name
        if not file.is_file():  # opening a pipe would wait for ever
            raise ModelFailed(f"there is no regular file {name}")
        try:
            settings = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        except OSError as error:
            raise ModelFailed(f"{name} cannot be read: {error.strerror}") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ModelFailed(f"{name} is not a JSON object: {error}") from None
        return cls(settings, name)

    def __contains__(self, key: str) -> bool:
        return self._settings.get(key) is not None

    def renamed(self, names: Mapping[str, str]) -> "Config":
        """With settings under their usual names, too.

        Args:
            names: what these settings call each of them, by its usual name.
        """
        usual = {name: self._settings[own] for name, own in names.items() if own in self}
        return Config(self._settings | usual, self._where)

    def completed(self, defaults: Mapping[str, Any]) -> "Config":
        """With values for settings that are missing or null."""
        given = {key: value for key, value in self._settings.items() if value is not None}
        return Config({**defaults, **given}, self._where)

    def require(self, key: str, *built: object) -> None:
        """Make sure of an option that our graphs are built for some values of.

        Missing, it has one of them. A list must have no others.

        Raises:
            UnsupportedArchitecture: it has another value.
        """
        found = self._settings.get(key)
        for value in found if isinstance(found, list) else [found]:
            if value is not None and value not in built:
                only = " or ".join(map(repr, built)) or "none"
                raise UnsupportedArchitecture(
                    f"{self._where}: {key} = {value!r:.80} is not supported, only {only}"
                )

    def integer(
        self, key: str, default: int | None = None, *, least: int = -_LARGEST, most: int = _LARGEST
    ) -> int:
        """A whole number within limits, which keep nonsense from taking all time and memory."""
        value = self._get(key, int, default)
        if not least <= value <= most:
            raise ModelFailed(
                f"{self._where}: {key} must be from {least} to {most}, and is {value}"
            )
        return value

    def size(self, key: str, default: int | None = None, *, most: int = _LARGEST) -> int:
        """A whole number above 0."""
        return self.integer(key, default, least=1, most=most)

    def shared(self, total: str, shares: str, *defaults: int) -> int:
        """How much of one size each of a number of equal shares has.

        Args:
            total, shares: keys, such as `hidden_size` and `num_attention_heads`.
            defaults: of both.

        Raises:
            ModelFailed: it cannot be cut like this.
        """
        default, default_shares = defaults or (None, None)
        size, count = self.size(total, default), self.size(shares, default_shares)
        if size % count:
            raise ModelFailed(
                f"{self._where}: {total} ({size}) must be a multiple of {shares} ({count})"
            )
        return size // count

    def number(self, key: str, default: float | None = None) -> float:
        return self._get(key, float, default)

    def text(self, key: str, default: str | None = None) -> str:
        return self._get(key, str, default)

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._get(key, bool, default)

    def texts(self, key: str) -> list[str]:
        """A list of texts, or one of them; empty when it is missing."""
        if key not in self:
            return []
        found = self._convert(key, str | list[str], "a text or a list of them")
        return [found] if isinstance(found, str) else found

    def integers(self, key: str) -> list[int]:
        """A list of whole numbers, or one of them; empty when it is missing."""
        if key not in self:
            return []
        expected = f"a whole number or a list of them, each up to {_LARGEST}"
        found = self._convert(key, _Whole | list[_Whole], expected)
        return [found] if isinstance(found, int) else found

    def numbered(self, key: str) -> tuple[str, ...]:
        """Texts by number, from 0 on; empty if it is anything else, for they are only names."""
        try:
            found = msgspec.convert(self._settings.get(key), dict[str, str])
        except msgspec.ValidationError:
            return ()
        numbers = [str(number) for number in range(len(found))]
        return tuple(map(found.__getitem__, numbers)) if found.keys() == set(numbers) else ()

    def section(self, key: str) -> "Config":
        """Settings inside these; empty when they are missing."""
        inner = self._convert(key, dict[str, Any], "an object") if key in self else {}
        return Config(inner, f"{self._where}: {key}")

    def sections(self, key: str) -> list["Config"]:
        """A list of settings inside these; empty when it is missing."""
        found = self._convert(key, list[dict[str, Any]], "a list of objects") if key in self else []
        return [
            Config(inner, f"{self._where}: {key}[{index}]") for index, inner in enumerate(found)
        ]

    def _get(self, key: str, kind: type[_Value], default: _Value | None) -> _Value:
        if key in self:
            found: _Value = self._convert(key, kind, _KINDS[kind])
            return found
        if default is None:
            raise ModelFailed(f"{self._where} lacks {key}")
        return default

    def _convert(self, key: str, kind: Any, expected: str) -> Any:
        value = self._settings[key]
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise ModelFailed(
                f"{self._where}: {key} must be {expected}, and is {value!r:.80}"
            ) from None
