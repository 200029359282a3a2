"""Entries in the configuration whose models are gone: those that uploads wrote go with them."""

import logging
from functools import reduce

from snoozeml.config.keys import ConfigError
from snoozeml.config.schema import Configuration
from snoozeml.config.writing import replace_file, without_entry

_log = logging.getLogger("snoozeml.uploads")


def remove_orphans(configuration: Configuration) -> bool:
    """Remove the entries that count no more from the configuration file.

    Returns:
        whether there is none any more.
    """
    file = configuration.server.config_path
    ids = [model_id for model_id, _ in configuration.orphans]
    if not ids or file is None:
        return True
    try:
        text = file.read_text(encoding="utf-8-sig")
        rest = reduce(lambda text, model_id: without_entry(file, text, model_id), ids, text)
        replace_file(file, rest.encode())
    except (OSError, ConfigError) as error:
        wanted = ", ".join(f'[models."{model_id}"]' for model_id in ids)
        _log.warning(
            "remove %s, which came with uploads that are gone; the file cannot be changed: %s",
            *(wanted, error),
        )
        return False
    _log.info("removed entries of uploads that are gone", extra={"fields": {"models": ids}})
    return True
