"""Packages that only some users have."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, what_for: str, package: str | None = None) -> ModuleType:
    """Import a module, or say which package to install.

    Parameters
    ----------
    module : str
        What to import.
    what_for : str
        What needs it: the beginning of the sentence.
    package : str, optional
        Its name for pip, where it is not the module's first part.

    Raises
    ------
    ImportError
        The package is not installed, or does not import.
    """
    package = package or module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise  # The package is there, and lacks something of its own.
        raise ImportError(
            f"{what_for} needs {package}, which is not installed: pip install {package}",
            name=error.name,
        ) from error
