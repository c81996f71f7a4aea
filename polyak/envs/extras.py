"""Packages that an installation may leave out."""

from importlib import import_module
from typing import Any


def needed(package: str, why: str, extra: str) -> Any:
    """Imports a package of an optional extra.

    Args:
        package: its name in import statements.
        why: the feature that needs it; begins the message.
        extra: of polyak, which installs it.

    Raises:
        ImportError: it is not installed; the message has the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{why}: pip install 'polyak[{extra}]'") from error
