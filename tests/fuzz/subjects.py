"""Every parser that reads bytes from outside."""

from typing import Final

from fuzz import configurations, model_files, requests, uploads

SUBJECTS: Final = (
    *requests.SUBJECTS,
    *uploads.SUBJECTS,
    *model_files.SUBJECTS,
    *configurations.SUBJECTS,
)
