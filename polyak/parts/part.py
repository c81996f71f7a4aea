"""Parts of a model: each bundles one aspect's state, checks and effects.

A class names its parts by ``made_of = {"epsilon": Epsilon}``; it inherits those of its base classes, and an entry of
the same name replaces theirs. The model holds each part under its name, and calls the methods below on all of them, in
that order.
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
    """Base class of parts. Its methods do nothing.

    Args:
        model: the algorithm that holds the part. Only its hyper-parameters are set yet.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    raw: ClassVar[bool] = False
    """Whether it stores experience before normalisation."""
    stores_masks: ClassVar[tuple[str, ...]] = ()
    """The masks of a step that it stores: ``"masks"``, for its action, and ``"next_masks"``."""
    explores_by: ClassVar[tuple[str, ...]] = ()
    """Hyper-parameters that its exploration depends on."""
    saves_also: ClassVar[tuple[str, ...]] = ()
    """Names of things that it saves only if ``include`` lists them."""

    # -- construction --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuses invalid combinations of hyper-parameters, before anything is built and whenever one is set."""

    def attach(self, env: Any) -> bool:
        """Takes the ``env`` of the constructor or ``load`` if that is not an environment. Returns whether it did."""
        return False

    def check_env(self, env: VecEnv) -> None:
        """Refuses environments that the model cannot continue in."""

    def prepare(self) -> None:
        """Creates what the networks depend on, once the spaces are known."""

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Returns the policy's arguments, with additions."""
        return options

    def optimizer(self) -> OptimizerRecipe | None:
        """Returns the default optimizer if ``policy_kwargs`` name none; ``None`` leaves the choice to others."""
        return None

    def build(self) -> None:
        """Builds what depends on networks, and on environments if there are any."""

    def check_ready(self, first: bool) -> None:
        """Refuses a model that cannot be trained; ``first``: at the end of construction, otherwise before ``learn``."""

    def adopt(self, name: str, before: Any) -> None:
        """Applies the effects of a hyper-parameter that was set; ``before`` is its previous value, which is restored if
        this raises."""

    def change_env(self) -> None:
        """Adapts to new environments of the model."""

    # -- acting --------------------------------------------------------------------------------------------------------

    def exploration(self) -> dict[str, Exploration]:
        """Returns the exploration between policy and environments, by name, in the order of calls."""
        return {}

    def columns(self) -> tuple[Column, ...]:
        """Returns further columns to store with each step."""
        return ()

    def column_options(self) -> dict[str, Any]:
        """Returns all columns as an argument of buffers; without columns none, so that a user's buffer need not take
        it."""
        columns = self.model._columns()
        return {"columns": columns} if columns else {}

    def why_numpy(self) -> str | None:
        """Returns the reason why experience in tensors must be copied to numpy; ``None`` if it need not be."""
        return None

    def find_masks(self) -> None:
        """Adapts to action masks, which the first reset has shown."""

    def lose_episodes(self) -> None:
        """Handles episodes that ended without a last step, since their process was lost."""

    # -- learning ------------------------------------------------------------------------------------------------------

    beginning: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Called with the model before a rollout begins."""
    completing: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Called with the model when a rollout is complete, before the learner evaluates it."""
    storing: ClassVar[tuple[Callable[[Any, Any], Any], ...]] = ()
    """Called with the model and a step of the environments, one after another; each returns the step to store."""
    after_step: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Called with the model after each step of the environments is stored; in offline training, after each gradient
    step."""
    watching: ClassVar[tuple[Callable[[Any, Any], None], ...]] = ()
    """Called with the model and the metrics of its updates."""
    logs: ClassVar[tuple[Callable[[Any], None], ...]] = ()
    """Called with the model before a log table is written."""

    def begin(self, reset: bool) -> None:
        """Prepares for the first iteration of ``learn``, after the counters are set; ``reset``: they were set to zero."""

    def expected_updates(self, timesteps: int) -> tuple[int, int] | None:
        """Returns the gradient steps that this many environment steps will bring, and the batch size; ``None`` if not
        its matter."""
        return None

    def end_episodes(self) -> None:
        """Called before the environments are reset, possibly in the middle of an episode."""

    # -- files ---------------------------------------------------------------------------------------------------------

    def arguments(self, values: dict[str, Any]) -> None:
        """Converts hyper-parameters back to a constructor's arguments, and drops those that files cannot hold."""

    def summary(self) -> dict[str, str]:
        """Returns lines for the model's ``repr``, label -> text; also before the model is built."""
        return {}

    def state(self) -> dict[str, Any]:
        """Returns the state for files, as plain data."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` returned, from a dict with further entries."""

    def save(self, saved: Saved, include: set[str]) -> None:
        """Writes tensors and arrays into a file, and what ``include`` lists."""

    def load(self, saved: Saved) -> None:
        """Restores learned parameters."""

    def resume(self, saved: Saved, resume: bool) -> None:
        """Restores the state of collection; with ``resume`` also experience."""


MadeOf = Mapping[str, Callable[[Any], Part]]


class Through(Generic[Arguments, Result]):
    """A method of a part that is called as a method of the model.

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
    """Attributes of a model that training needs to resume: numbers, texts or bools.

    Args:
        names: name in the file -> attribute.
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
    """Attributes that are also saved with a replay buffer."""

    saves_also: ClassVar = ("replay_buffer",)


class OfPolicy(Part):
    """Hyper-parameters that are passed to the policy.

    Args:
        names: of the hyper-parameters.
    """

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__(model)
        self.names = names

    def check(self) -> None:
        """Refuses ``policy_kwargs`` with other values for them."""
        options, cls = self.model.policy_kwargs or {}, type(self.model).__name__
        for name in self.names:
            value = getattr(self.model, name)
            fix = f"{name}={value!r} says otherwise. Give {name} as an argument of {cls} alone."
            require(options.get(name, value) == value, f"policy_kwargs[{name!r}]", options.get(name), fix)

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, **{name: getattr(self.model, name) for name in self.names}}


def of_policy(*names: str) -> Callable[[Any], OfPolicy]:
    """Returns a factory of the part for hyper-parameters that are passed to the policy."""
    return partial(OfPolicy, names=names)
