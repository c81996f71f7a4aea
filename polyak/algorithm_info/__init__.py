"""Cards: metadata of an algorithm besides its hyper-parameters, and the parts of its search ranges.

Generated from cards: the search spaces of `polyak tune`, the settings of `polyak train`, and the algorithms' rows and
pages in README and documentation (``python docs/from_cards.py``).
"""

from polyak.algorithm_info import tune
from polyak.algorithm_info.card import Card
from polyak.algorithm_info.search import Search, SearchPart, Task

__all__ = ["Card", "SearchPart", "Search", "Task", "tune"]
