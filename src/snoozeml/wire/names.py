"""The names that a request may have: which inputs it must give, which outputs it can ask for."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from snoozeml.core.tensors import Signature, TensorSpec
from snoozeml.errors import InvalidInput
from snoozeml.wire.json_values import quoted

MOST_TENSORS: Final = 4096
"""Inputs of a request, or outputs that it asks for, of a model that does not declare its own. Each
costs some microseconds in several places; a model with so many has not been seen."""


class NameRules:
    """Checks the names in a request against the signature, whatever its dialect.

    An input with a default may be left out; so may all inputs of a group, as long as one group is
    there. See `TensorSpec`. Where the signature is open, any name is fine once.
    """

    def __init__(self, signature: Signature) -> None:
        self._inputs: Final = {spec.name: spec for spec in signature.inputs}
        self._outputs: Final = {spec.name: spec for spec in signature.outputs}
        self._open_inputs: Final = signature.open_inputs
        self._open_outputs: Final = signature.open_outputs
        self._all_outputs: Final = tuple(self._outputs)
        self.only_input: Final = next((s.name for s in signature.inputs if s.any_name), None)
        """What an input is called that requests may call what they like."""
        self._groups: Final = {spec.group for spec in signature.inputs if spec.group}

    def check_inputs(self, names: Sequence[str]) -> list[str]:
        """Check which inputs are given.

        Returns:
            The inputs that are left out and shall be filled with their defaults.

        Raises:
            InvalidInput: one is unknown, there twice, or missing.
        """
        given = set(names)
        if given == self._inputs.keys() and len(given) == len(names):
            return []
        unknown = given - self._inputs.keys()
        if unknown and not self._open_inputs:
            first = next(name for name in names if name in unknown)
            raise InvalidInput(
                f"unknown input {quoted(first)}; the model takes {quoted(*self._inputs)}"
            )
        _check_count("inputs", names)
        if len(given) < len(names):
            counts = Counter(names)
            double = next(name for name in names if counts[name] > 1)
            raise InvalidInput(f"input {quoted(double)} is there more than once")
        if self._open_inputs:
            return []
        absent = self._absent_groups(given)
        wanted = [
            spec
            for name, spec in self._inputs.items()
            if name not in given and spec.group not in absent
        ]
        missing = [spec.name for spec in wanted if spec.default is None]
        if missing:
            raise InvalidInput(f"missing in inputs: {quoted(*missing)}")
        if absent and absent == self._groups:
            raise InvalidInput(f"missing in inputs: {self._needed_by(absent, ' or ')}")
        return [spec.name for spec in wanted]

    def outputs(self, names: Sequence[str] | None, inputs: Collection[str]) -> tuple[str, ...]:
        """The outputs to answer a request with.

        Args:
            names: those asked for; None: all that its inputs allow, and of an open model whatever
                it gives, which is written as none at all.
            inputs: names of those given.

        Raises:
            InvalidInput: an output is unknown, asked for twice, or needs inputs that are left out;
                or none is asked for.
        """
        absent = self._absent_groups(inputs) if self._groups else set()
        if names is None:
            if not absent:
                return self._all_outputs
            return tuple(n for n, spec in self._outputs.items() if not _needs(spec, absent))
        if self._open_outputs:
            _check_count("outputs", names)
        for name in () if self._open_outputs else names:
            if name not in self._outputs:
                raise InvalidInput(
                    f"unknown output {quoted(name)}; the model gives {quoted(*self._outputs)}"
                )
            if lacking := _needs(self._outputs[name], absent):
                raise InvalidInput(
                    f"output {name!r} needs {self._needed_by(lacking, ' and ')} in inputs"
                )
        if not names or len(set(names)) < len(names):
            which = "what the model gives" if self._open_outputs else quoted(*self._outputs)
            raise InvalidInput(f"outputs must name some of {which}, each once, or be left out")
        return tuple(names)

    def _absent_groups(self, given: Collection[str]) -> set[str]:
        return self._groups - {self._inputs[name].group for name in given}

    def _needed_by(self, groups: Collection[str], conjunction: str) -> str:
        needed = (s for s in self._inputs.values() if s.group in groups and s.default is None)
        return conjunction.join(quoted(spec.name) for spec in needed)


def _check_count(kind: str, names: Sequence[str]) -> None:
    if len(names) > MOST_TENSORS:
        raise InvalidInput(
            f"a request names no more than {MOST_TENSORS} {kind}, this one has {len(names)}"
        )


def _needs(output: TensorSpec, absent: set[str]) -> set[str]:
    """The groups that an output needs and a request has left out."""
    return absent if output.group is None else absent & {output.group}
