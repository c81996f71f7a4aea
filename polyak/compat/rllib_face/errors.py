"""What can go wrong here and nowhere else."""


class EnvError(Exception):
    """RLlib's, for programs to raise or to catch: an environment is not what it should be."""


class UnsupportedSpaceException(Exception):
    """RLlib's, for programs to raise or to catch: a space is not one that they know."""


class NotThereYetError(NotImplementedError):
    """A setting that RLlib has and that is understood, but that nothing carries out so far."""
