"""The card of an algorithm, at the end of its class."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyak.algorithm_info.search import Search


@dataclass(frozen=True)
class Card:
    """Metadata of an algorithm besides its hyper-parameters, its ``action_spaces`` and its file's docstring.

    Each algorithm of the registry has its own. A class of the user's own inherits the card of the algorithm that it
    derives from; a card of its own that leaves ``search`` or ``needs`` out says that there are none.
    """

    idea: str
    """A short description for a row of a table: not a sentence, no full stop."""
    learns_from: str
    """Where its experience comes from: ``"its own rollouts"``, ``"replay"``, ``"a dataset"``."""
    reference: str = ""
    """Its source, as in its file's docstring: ``"arXiv:1707.06347"``, or author and year; empty: what stands in
    parentheses at the end of the first sentence of the class."""
    search: Search = field(default_factory=Search)
    """The search space of `polyak tune`; if empty, a space must be given to it."""
    settings: str | Mapping[str, Mapping[str, Any]] = ""
    """Tuned settings by environment, as in a file for ``--conf-file``, with a block ``"default"``; or the name of such
    a file, which lies beside the class's. Empty: the file beside the class's with its name and the suffix ``.yml``, if
    there is one; else its defaults are its settings."""
    title: str = ""
    """Its name in the documentation; empty: the name of the class."""
    page: str = ""
    """The page in ``docs/`` that describes it; empty: its own in ``docs/algorithms/``."""
    observations: str = ""
    """What it reads, if its policies do not read every kind of observation."""
    refuses: tuple[str, ...] = ()
    """What its kind offers and it cannot be combined with: names of arguments (``"replay_buffer_class"`` stands for
    hindsight), and ``"memory"`` of ``policy_kwargs``."""
    needs: str = ""
    """What it cannot learn without and only a program can give, since it is an object: the name of an argument."""


def reference_of(cls: Any) -> str:
    """Returns the source of an algorithm: its card's, or what its first sentence ends with, as ``(arXiv:1707.06347)``;
    empty if there is none."""
    first = " ".join((cls.__doc__ or "").partition("\n\n")[0].split())
    found = re.findall(r"\(([^()]+)\)\.?$", first)
    return str(cls.card.reference or (found[-1] if found else ""))
