"""Errors that only RLlib's API raises."""


class EnvError(Exception):
    """RLlib's exception about an invalid environment, for programs that raise or catch it."""


class UnsupportedSpaceException(Exception):
    """RLlib's exception about an unsupported space, for programs that raise or catch it."""


class NotThereYetError(NotImplementedError):
    """A setting of RLlib that is known but not supported yet."""
