"""What a class inherits so that a file may name it. Nothing heavy is imported for that."""


class MayBeNamed:
    """Marks further classes that options may hold, and that a file may name therefore."""
