"""Versions of models, as far as clients ask for them."""

from snoozeml.core.names import MODEL_VERSION
from snoozeml.errors import ModelNotFound


def check_version(model_id: str, version: str) -> None:
    """Check the version that a client asks for; an empty one means any.

    Raises:
        ModelNotFound: it is not the one there is.
    """
    if version not in ("", MODEL_VERSION):
        raise ModelNotFound(
            f"Model not found: {model_id}, version {version!r:.60}; there is only {MODEL_VERSION}"
        )
