"""The card of an algorithm, at the end of its class."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyak.algorithm_info.search import Search


@dataclass(frozen=True)
class Card:
    """Metadata of an algorithm besides its hyper-parameters, its ``action_spaces`` and its file's docstring.

    Each algorithm of the registry has its own. A user's class inherits the card of its base class; a card of its own
    without ``search`` or ``needs`` has none.
    """

    idea: str
    """A short description for a row of a table: not a sentence, no full stop."""
    learns_from: str
    """Source of its experience: ``"its own rollouts"``, ``"replay"``, ``"a dataset"``."""
    reference: str = ""
    """Its publication, as in its file's docstring: ``"arXiv:1707.06347"``, or author and year; empty: the text in
    parentheses at the end of the class docstring's first sentence."""
    search: Search = field(default_factory=Search)
    """The search space of `polyak tune`; if empty, the user must give one."""
    settings: str | Mapping[str, Mapping[str, Any]] = ""
    """Tuned settings by environment, as in a file for ``--conf-file``, with a block ``"default"``; or the name of such
    a file beside the class's. Empty: the file beside the class's with its name and the suffix ``.yml``, or, if there is
    none, the defaults."""
    title: str = ""
    """Its name in the documentation; empty: the name of the class."""
    page: str = ""
    """Its page in ``docs/``; empty: its own in ``docs/algorithms/``."""
    observations: str = ""
    """The supported observations, if its policies do not support every kind."""
    refuses: tuple[str, ...] = ()
    """Options of its kind that it does not support: names of arguments (``"replay_buffer_class"`` stands for
    hindsight), and ``"memory"`` of ``policy_kwargs``."""
    needs: str = ""
    """The name of a required argument that only a program can give, since it is an object."""


def reference_of(cls: Any) -> str:
    """Returns the publication of an algorithm: its card's, or the text in parentheses at the end of its first sentence,
    such as ``(arXiv:1707.06347)``; empty if there is none."""
    first = " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
    found = re.findall(r"\(([^()]+)\)\.?$", first)
    return str(cls.card.reference or (found[-1] if found else ""))
