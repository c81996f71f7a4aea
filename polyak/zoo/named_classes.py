"""Classes that settings name: wrappers, callbacks and policies. Nothing else imports a name out of a file.

A name is checked before it is imported, the class after that, and what it makes after it is called. In a file that may
have come from others it must be a class of the kind that its place wants, from a package that may be named there
(`authors`), with arguments that are plain data (`plain_arguments`). So no function is ever called by its name, and no
``trust`` of a reader can be reached.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

from polyak.zoo.authors import OTHERS, OURS, Author
from polyak.zoo.errors import ZooError
from polyak.zoo.literals import import_name
from polyak.zoo.peer_names import our_path
from polyak.zoo.plain_arguments import check_arguments

#: Settings that name classes -> what kind of class, and of what kind it makes something where the author is trusted.
KINDS: dict[str, tuple[str, str]] = {
    "env_wrapper": ("gymnasium.Wrapper", "gymnasium.Env"),
    "vec_env_wrapper": ("polyak.envs.VecEnvWrapper", "polyak.envs.VecEnv"),
    "callback": ("polyak.callbacks.callback.BaseCallback", "polyak.callbacks.callback.BaseCallback"),
    "policy": ("polyak.nn.policies.base.Policy", "polyak.nn.policies.base.Policy"),
}


@dataclass(frozen=True)
class NamedClass:
    """A class that a setting names, and the keyword arguments to give it; can be pickled for worker processes.

    Fields: ``path`` as it was written; ``key`` one of `KINDS`; ``source`` the file where it stands; ``author`` its
    author.
    """

    path: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    key: str = "env_wrapper"
    source: str = "settings"
    author: Author = OTHERS

    def check(self) -> None:
        """Refuse, importing nothing, a name or arguments that the author may not write; raises ZooError."""
        if not self.author.may_name(our_path(self.path)):
            package = self.path.partition(".")[0]
            raise ZooError(
                f"{self._where()}, code that is not run unasked: a file may have come from others. Its names must be "
                "of polyak, its peers, gymnasium, or a package that registers environments. If you trust the code, "
                f"add --gym-packages {package}; or --trust, if you trust all that the file names."
            )
        check_arguments(self.kwargs, self.author, source=self.source, key=f"{self.key} {self.path}")

    @property
    def is_ours(self) -> bool:
        """Whether it is polyak's or gymnasium's, and so must be there."""
        return our_path(self.path).partition(".")[0] in OURS

    def find(self) -> Any:
        """Import the class and return it.

        Where the author is trusted it may also be a function that makes something of the kind.

        Raises:
            ZooError: it may not be named, is not there, or is not of the kind.
        """
        self.check()
        try:
            found = import_name(our_path(self.path))
        except ZooError as error:
            raise ZooError(f"{self._where()}. {error}") from error
        kind = self._kind()
        if isinstance(found, type):
            if issubclass(found, kind) and self.author.knows(found.__module__.partition(".")[0]):
                return found
        elif self.author.is_trusted and callable(found):
            return found
        way_out = "" if self.author.is_trusted else " Only --trust, for files that you trust, lets functions make one."
        raise ZooError(f"{self._where()}, which is not a subclass of {kind.__name__}.{way_out}")

    def __call__(self, *args: Any) -> Any:
        """Import the class and build it on `args`; raises ZooError as `find` does, or if it cannot be built."""
        found = self.find()
        try:
            made = found(*args, **self.kwargs)
        except ZooError:
            raise
        except Exception as error:
            given = f" with {self.kwargs!r:.300}" if self.kwargs else ""
            raise ZooError(f"{self._where()}, which cannot be made{given}: {type(error).__name__}: {error}") from error
        if not isinstance(made, self._kind()):
            raise ZooError(f"{self._where()}, which made {made!r:.100} and no {self._kind().__name__}.")
        return made

    def _kind(self) -> type:
        of_classes, of_results = KINDS[self.key]
        module, _, name = (of_results if self.author.is_trusted else of_classes).rpartition(".")
        kind: type = getattr(importlib.import_module(module), name)
        return kind

    def _where(self) -> str:
        return f"{self.source}: {self.key} names {self.path!r:.200}"
