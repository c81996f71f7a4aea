"""The base class of classes that files may name. It has no heavy imports."""


class MayBeNamed:
    """Marks further classes that options may hold, and so files may name."""
