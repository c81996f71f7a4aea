"""The base class of classes that a file may name. It imports nothing heavy."""


class MayBeNamed:
    """Marks further classes that options may hold, and that a file may name therefore."""
