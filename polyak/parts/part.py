"""Parts of a model: what has a state, consequences or conditions of its own.

A class names its parts by ``made_of = {"epsilon": Epsilon}``; those of the classes above count, too, and an entry of
the same name replaces theirs. The model holds each under its name, and calls all of them, in that order, at the moments
that are the methods here.
"""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import MethodType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, overload

from polyak.checkpoint.saved import Saved
from polyak.collecting.exploration import Exploration
from polyak.envs import VecEnv
from polyak.experience.schema import Column
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import OptimizerRecipe

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Part:
    """One part of a model. What a part leaves out does nothing.

    Args:
        model: the algorithm that holds it. It has its hyper-parameters, and nothing else yet.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    raw: ClassVar[bool] = False
    """Whether it stores experience as it was before normalisation."""
    stores_masks: ClassVar[tuple[str, ...]] = ()
    """Which masks of a step it stores: ``"masks"``, that it was made under, and ``"next_masks"``."""
    explores_by: ClassVar[tuple[str, ...]] = ()
    """Hyper-parameters that its exploration is built from."""
    saves_also: ClassVar[tuple[str, ...]] = ()
    """What it puts into a file only if ``include`` names it."""

    # -- construction --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuses hyper-parameters that do not fit together, before anything is built, and whenever one is set."""

    def attach(self, env: Any) -> bool:
        """Takes what the constructor or ``load`` got as ``env``, if that is no environment. False: it is not for it."""
        return False

    def check_env(self, env: VecEnv) -> None:
        """Refuses environments that the model cannot continue in."""

    def prepare(self) -> None:
        """Makes what networks are built with, when the spaces are known."""

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Adds arguments of the policy to those that it is built with."""
        return options

    def optimizer(self) -> OptimizerRecipe | None:
        """The optimizer where ``policy_kwargs`` name none; ``None``: not its matter."""
        return None

    def build(self) -> None:
        """Builds what needs networks, and what acts if there are environments."""

    def check_ready(self, first: bool) -> None:
        """Refuses what cannot be learned with: at the end of construction, which is ``first``, and before ``learn``."""

    def adopt(self, name: str, before: Any) -> None:
        """Follows a hyper-parameter that has been set, and was ``before``. All is as before if this raises."""

    def change_env(self) -> None:
        """The model has got other environments."""

    # -- acting --------------------------------------------------------------------------------------------------------

    def exploration(self) -> dict[str, Exploration]:
        """What comes between policy and environments, by name, in the order in which it is called."""
        return {}

    def columns(self) -> tuple[Column, ...]:
        """What is stored with each step besides the usual."""
        return ()

    def column_options(self) -> dict[str, Any]:
        """All columns as an argument of buffers, which a user's own need not take as long as there are none."""
        columns = self.model._columns()
        return {"columns": columns} if columns else {}

    def why_numpy(self) -> str | None:
        """Why experience in tensors must be copied to numpy; ``None``: it need not be."""
        return None

    def find_masks(self) -> None:
        """The first reset has shown that environments say which choices they allow."""

    def lose_episodes(self) -> None:
        """Some episodes ended without a last step, with the process that made them."""

    # -- learning ------------------------------------------------------------------------------------------------------

    beginning: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Called with the model before a rollout begins."""
    completing: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """The same when it is whole, before the learner evaluates it."""
    storing: ClassVar[tuple[Callable[[Any, Any], Any], ...]] = ()
    """Called with the model and a step of the environments, one after another: what is stored in its place."""
    after_step: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Called with the model after each step of the environments, when it is stored; from a dataset alone, after each
    gradient step."""
    watching: ClassVar[tuple[Callable[[Any, Any], None], ...]] = ()
    """Called with the model and what its updates measured."""
    logs: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Called with the model before a table is written."""

    def begin(self, reset: bool) -> None:
        """Before the first iteration of ``learn``, when the counters stand; ``reset``: they began at zero."""

    def expected_updates(self, timesteps: int) -> tuple[int, int] | None:
        """Gradient steps that so many environment steps will bring, and the rows of each; ``None``: not its matter."""
        return None

    def end_episodes(self) -> None:
        """The environments are about to be reset, in the middle of an episode if need be."""

    # -- files ---------------------------------------------------------------------------------------------------------

    def arguments(self, values: dict[str, Any]) -> None:
        """Puts hyper-parameters back into the form of a constructor's arguments, and drops what files cannot hold."""

    def summary(self) -> dict[str, str]:
        """What ``repr`` of the model shows of it, also of one that is not built: what -> in words."""
        return {}

    def state(self) -> dict[str, Any]:
        """What files hold, as plain data."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state` returned, among other entries."""

    def save(self, saved: Saved, include: set[str]) -> None:
        """Puts tensors and arrays into a file, and what ``include`` names."""

    def load(self, saved: Saved) -> None:
        """Takes back what was learned."""

    def resume(self, saved: Saved, resume: bool) -> None:
        """Takes back what was under way; with ``resume`` experience, too."""


MadeOf = Mapping[str, Callable[[Any], Part]]


class Through(Generic[Arguments, Result]):
    """A method of a part, called as one of the model that holds the part.

    Args:
        part: the model's name of the part.
        method: of the part's class.
    """

    def __init__(self, part: str, method: Callable[Concatenate[Any, Arguments], Result]) -> None:
        @wraps(method)
        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(getattr(model, part), method.__name__)(*args, **kwargs)

        self.call, self.__doc__ = call, method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.call.__name__ = name

    @overload
    def __get__(self, model: None, owner: type) -> Callable[Concatenate[Any, Arguments], Result]: ...

    @overload
    def __get__(self, model: object, owner: type) -> Callable[Arguments, Result]: ...

    def __get__(self, model: Any, owner: type) -> Any:
        return self.call if model is None else MethodType(self.call, model)


class KeptAttributes(Part):
    """Attributes of a model that training needs to resume: a number, a text or a truth each.

    Args:
        names: name in the file -> of the attribute.
    """

    def __init__(self, model: Any, names: Mapping[str, str]) -> None:
        super().__init__(model)
        self.names = names

    def state(self) -> dict[str, Any]:
        return {name: getattr(self.model, attribute) for name, attribute in self.names.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for name, attribute in self.names.items():
            setattr(self.model, attribute, type(getattr(self.model, attribute))(state[name]))


class KeptWithExperience(KeptAttributes):
    """The same beside a replay buffer that the model saves by itself."""

    saves_also: ClassVar = ("replay_buffer",)


class OfPolicy(Part):
    """Hyper-parameters that are arguments of the policy.

    Args:
        names: of those.
    """

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__(model)
        self.names = names

    def check(self) -> None:
        """Refuses ``policy_kwargs`` that have other values for them."""
        options, cls = self.model.policy_kwargs or {}, type(self.model).__name__
        for name in self.names:
            value = getattr(self.model, name)
            fix = f"{name}={value!r} says otherwise. Give {name} as an argument of {cls} alone."
            require(options.get(name, value) == value, f"policy_kwargs[{name!r}]", options.get(name), fix)

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, **{name: getattr(self.model, name) for name in self.names}}


def of_policy(*names: str) -> Callable[[Any], OfPolicy]:
    """A part for hyper-parameters that are arguments of the policy."""
    return partial(OfPolicy, names=names)
