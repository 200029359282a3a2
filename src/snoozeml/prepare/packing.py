"""What a plan holds of weights that are packed: laid out the way the engine's kernels read them."""

from pathlib import Path
from typing import Final, NamedTuple

import onnx

from snoozeml.prepare.external_data import tensors

_WORTH_PACKING_BYTES: Final = 2**20
"""Below this, packed weights save a run a few microseconds (measured: 12 µs at 0.8 MB)."""

_ALIGNMENT_BYTES: Final = 64
"""The widest vectors are read with instructions that end the process at any other address."""

_ENTRY: Final = "prepacked"


class PackedWeights(NamedTuple):
    """The packed copies in a plan's weights file: where each begins, and how long it is."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)

    @property
    def are_useful(self) -> bool:
        """Whether they may be used, and make runs noticeably faster."""
        is_safe = all(offset % _ALIGNMENT_BYTES == 0 for offset in self.offsets)
        return is_safe and self.total_bytes >= _WORTH_PACKING_BYTES

    @property
    def packing_bytes(self) -> int:
        """Memory that a session takes to find them.

        The engine packs each tensor again, to recognise its copy in the file, and lets go of it
        before the next one.
        """
        return max(self.sizes, default=0)


def packed_weights(graph: Path) -> PackedWeights:
    """Look up the packed weights that a graph refers to.

    ONNX Runtime notes them beside a tensor's own place as `key|offset;length;checksum|…`, a part
    for each copy. Release 1.21 puts them wherever the tensor before ends; 1.32 aligns them.
    """
    model = onnx.load(graph, load_external_data=False)
    copies = [
        copy.split(";")
        for tensor in tensors(model)
        for entry in tensor.external_data
        if entry.key.startswith(_ENTRY)
        for copy in entry.value.split("|")[1:]
    ]
    return PackedWeights(
        offsets=tuple(int(offset) for offset, _, _ in copies),
        sizes=tuple(int(size) for _, size, _ in copies),
    )
