"""Where the generated code registers its messages: a pool of our own.

In the process-wide pool a name can exist only once. The messages of the Open Inference Protocol are
called the same in every package that has them, so whoever imports us beside another one of them (a
client in a Python model, say) would get an error at import.
"""

from typing import Final

from google.protobuf.descriptor_pool import DescriptorPool

_POOL: Final = DescriptorPool()


def Default() -> DescriptorPool:  # noqa: N802  what generated code asks for
    return _POOL
