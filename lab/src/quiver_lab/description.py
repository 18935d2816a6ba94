"""What people write for the lab in YAML: read into a model, with errors of one line that name the place."""

from __future__ import annotations

from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)


def read(model: type[M], text: str, name: str, error: type[Exception]) -> M:
    """Read ``text`` as ``model``; what is wrong with it is an ``error`` that begins with ``name``."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as wrong:
        raise error(f"{name}: {' '.join(str(wrong).split())}") from wrong
    if not isinstance(document, dict):
        raise error(f"{name}: the file has no keys")
    try:
        return model.model_validate(document)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        place = ".".join(str(x) for x in first["loc"]) or "top"
        more = f" (and {wrong.error_count() - 1} more)" if wrong.error_count() > 1 else ""
        raise error(f"{name}: {place}: {first['msg'].removeprefix('Value error, ')}{more}") from wrong
