"""What can go wrong here and nowhere else."""


class NotThereYetError(NotImplementedError):
    """A setting that RLlib has and that is understood, but that nothing carries out so far."""
