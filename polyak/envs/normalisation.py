"""The normalisation of observations that a model learned with: the statistics of ``VecNormalize``, which the model
holds and applies, and those of other wrappers of its environments, which hold and apply them themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.spaces import maybe_transpose
from polyak.envs.state import EnvStateError
from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrapper_statistics import MISSING, OWN, Found, for_envs, have_data, merged, obstacles
from polyak.envs.wrappers.layers import (
    PartNormalizer,
    above_normalisation,
    check_one_normaliser,
    replay_normalizer,
    wrapped_beneath,
)
from polyak.envs.wrappers.normalize import VecNormalize, as_settings, unwrap_vec_normalize
from polyak.warning import advise, warn_user


class Normalisation:
    """The statistics of the environment in which a model learns, or of the file from which it was loaded."""

    by_itself = True
    """Whether a model without an environment normalises the observations given to ``predict``."""

    def __init__(self) -> None:
        self.env: VecEnv | None = None
        """The environment in which the model learns."""
        self.loaded: VecNormalize | None = None
        """The statistics of the file."""
        self._above: tuple[str, ...] = ()
        """Names of the wrappers around the file's ``VecNormalize`` that changed observations."""
        self.replay: VecNormalize | PartNormalizer | None = None
        """The normaliser of replayed experience."""
        self.loaded_of_wrappers: list[Found] = []
        """The statistics of wrappers in the file."""
        self._last_read: list[Found] | None = None
        """The statistics of the environment's wrappers at the last reading; ``None``: its wrappers hold none."""
        self._is_newest = False  # whether they are known to be unchanged since
        self._lent = 0

    def load(self, statistics: VecNormalize, above: tuple[str, ...]) -> None:
        """Take the statistics of a file, and the names of the wrappers around them."""
        self.loaded, self._above = statistics, above

    def use(self, env: VecEnv, raw_experience: bool) -> None:
        """Learn in an environment from now on.

        Args:
            env: with all its wrappers.
            raw_experience: whether experience is stored as it was before normalisation.

        Raises:
            ValueError: it is normalised twice.
        """
        check_one_normaliser(env)
        self.env, self.replay = env, replay_normalizer(env)
        try:
            found = env.get_statistics()
            self._last_read = found if any(found) else None
        except EnvStateError:  # reported when it is needed
            self._last_read = []
        if raw_experience:
            _advise_on_layers(env)

    @property
    def own(self) -> VecNormalize | None:
        """The ``VecNormalize`` of the environment, or ``None``."""
        return None if self.env is None else unwrap_vec_normalize(self.env)

    @property
    def known(self) -> VecNormalize | None:
        """The statistics of the environment, or else of the file."""
        return self.own or self.loaded

    @property
    def of_observations(self) -> VecNormalize | None:
        """:attr:`known`, if it normalises observations."""
        known = self.known
        return known if known is not None and known.norm_obs else None

    @property
    def of_wrappers(self) -> list[Found]:
        """The statistics that wrappers in the environment hold, an item for each environment, or else those of the
        file. If they cannot be read, a warning is given, and these are the last ones that were read."""
        if self.env is None or self._last_read is None:
            return self.loaded_of_wrappers
        try:
            self._last_read = self.env.get_statistics()
        except Exception as error:  # the environments are closed, under way in another thread, or do not show them
            if not self._is_newest:
                state = "taken as they were before" if self._last_read else "in no file and no evaluation"
                advise(
                    "statistics of wrappers that cannot be read",
                    f"wrappers in the environment hold running statistics, which cannot be read now ({error}). They "
                    f"are {state}. Use VecNormalize instead, whose statistics are always known.",
                )
        return self._last_read

    @contextmanager
    def changing(self) -> Iterator[None]:
        """While the block runs, statistics of wrappers change; then they are read, since environments may be closed
        before the model is saved."""
        self._is_newest = False
        yield
        if self.env is not None and self._last_read is not None:
            with suppress(Exception):  # reported when they are needed
                self._last_read, self._is_newest = self.env.get_statistics(), True

    @contextmanager
    def lent(self, env: VecEnv) -> Iterator[None]:
        """While the block runs, the wrappers in ``env`` use the statistics that the model learned with, without
        updating them; afterwards their own are restored.

        Warns if ``env`` lacks such a wrapper, or if the wrapper's statistics come from other data, which are not used
        here.
        """
        known = self.of_wrappers
        try:
            before = env.get_statistics() if have_data(known) else []
        except EnvStateError as error:
            advise("evaluation in wrappers that do not show statistics", _otherwise(_first(known), str(error)))
            before = []
        if not before:
            yield
            return
        given = merged(known)
        why = obstacles(given, before[0])
        for key, reason in why.items():
            if reason != OWN:
                advise(f"evaluation without the {key} of the training", _otherwise(key, reason))
            elif self.env is None or env.unwrapped is not self.env.unwrapped:
                advise(
                    f"statistics of an evaluation's own {key}",
                    f"the {_wrapper(key)} in env has seen data of its own. The model acts under the statistics that "
                    "it learned with instead.",
                )
        frozen = {k: {**given[k], "updates": False} for k in given.keys() & before[0] if why.get(k, OWN) == OWN}
        self._lent += 1
        try:
            env.set_statistics([frozen] * env.num_envs)
            yield
        finally:
            self._lent -= 1
            env.set_statistics(before)

    @property
    def above(self) -> tuple[str, ...]:
        """Names of the wrappers that change observations after ``VecNormalize``, the outermost first."""
        return self._above if self.own is None else above_normalisation(self.env).observations

    @property
    def is_by_itself(self) -> bool:
        """Whether the model's ``predict`` normalises by the statistics of the file, as it does without an
        environment."""
        alone = self.env is None and self.by_itself
        return alone and self.of_observations is not None and not self._above

    @property
    def of_predictions(self) -> VecEnv | None:
        """The environment whose ``VecNormalize`` normalises the observations of ``predict``; None if it takes raw
        ones."""
        return self.env if self.env is not None or self.by_itself else self.loaded

    def say_not_in(self, what: str) -> None:
        """Warn that the statistics of wrappers, if there are any, are not in a file of this kind."""
        if any(found := self.of_wrappers):
            name = _wrapper(_first(found))
            advise(
                f"statistics of wrappers in {what}",
                f"the model learned from what {name} returned, and {what} does not hold its running statistics: it "
                f"takes what {name} returns with those. Use VecNormalize instead, or save() for the model.",
            )

    def check_nothing_above(self, what: str, besides: str = "") -> None:
        """Refuse to normalise where wrappers would have changed observations further.

        Raises:
            ValueError: there is one, not called ``besides``.
        """
        if above := [name for name in self.above if name != besides]:
            raise ValueError(
                f"{what}, but the model learned from observations that {above[0]} changed after VecNormalize, and that "
                f"cannot be repeated here. Use an environment that is wrapped alike, {above[0]}(VecNormalize(...)), or "
                f"train with VecNormalize around {above[0]}."
            )

    def check_own_maps(self, what: str) -> None:
        """Refuse to describe the normalisation of observations by its statistics alone, where a subclass does more.

        Raises:
            ValueError: the class of the normaliser overrides how observations are normalised.
        """
        normalizer = self.of_observations
        if normalizer is not None and normalizer.overrides("normalize_obs", "_normalize_obs"):
            raise ValueError(
                f"{what}, and {type(normalizer).__name__} normalises observations by code of its own, which is not in "
                "the statistics. Normalise before the graph, and train with VecNormalize(..., norm_obs=False)."
            )

    def shown(self, observations: Any) -> Any:
        """Observations of an unwrapped environment, as ``predict`` takes them.

        Args:
            observations: one or a batch, as they were before ``VecNormalize``.

        Raises:
            ValueError: wrappers around ``VecNormalize`` change observations further.
        """
        normalizer = self.of_observations
        if normalizer is None or self.is_by_itself:
            return observations
        self.check_nothing_above("observations are those of an environment without VecNormalize")
        return normalizer.normalize_obs(observations)

    def frozen(self) -> VecNormalize | None:
        """A copy of the normaliser of the policy's observations; ``None``: they are not normalised.

        Raises:
            ValueError: wrappers around ``VecNormalize`` change observations further.
        """
        if (normalizer := self.of_observations) is None:
            return None
        self.check_nothing_above("observations are those of an environment without VecNormalize")
        return normalizer.detached()

    def as_learned(self, observation: Any, space: spaces.Space) -> Any:
        """An observation given to ``predict``, in the scale in which the policy learned.

        An observation that does not match the statistics is returned as it is, for the policy to refuse.

        Args:
            observation: one or a batch.
            space: of the observations that the policy reads.
        """
        if self.env is None and self.loaded_of_wrappers and not self._lent:
            advise(
                "observations of wrappers with statistics",
                f"the model learned from what {_wrapper(_first(self.loaded_of_wrappers))} returned, and "
                "predict() takes what that returns with the statistics in the model's file. load(path, env=...) puts "
                "them into a new one in env; evaluate(model, env) does so for its episodes.",
            )
        if not self.is_by_itself:
            if self._above and self.env is None and self.by_itself:
                advise(
                    "observations of the whole stack of wrappers",
                    f"the model learned from observations that {self._above[0]} changed after VecNormalize: without an "
                    f"environment, predict() takes them as {self._above[0]}(VecNormalize(...)) returns them.",
                )
            return observation
        statistics = self.loaded
        assert statistics is not None
        if isinstance(statistics.obs_rms, dict):
            fits = isinstance(observation, Mapping) and statistics.obs_rms.keys() <= observation.keys()
            return statistics.normalize_obs(dict(observation)) if fits else observation
        if statistics.obs_rms is None or isinstance(observation, tuple | Mapping):
            return observation
        shape = statistics.obs_rms.mean.shape
        observation = np.asarray(observation)
        if observation.shape[observation.ndim - len(shape) :] != shape:  # images may come channels-last
            observation = maybe_transpose(observation, space)
        return statistics.normalize_obs(observation)

    def put_around(self, env: VecEnv, num_timesteps: int) -> VecEnv:
        """Returns ``env`` with the normalisation that the model learned with. If the model came from a file with
        statistics, ``VecNormalize`` is put beneath those wrappers of ``env`` that were around it then.

        A ``VecNormalize`` in ``env`` without data takes the model's statistics; one with data, or of another shape,
        stays as it is, with a warning if the statistics differ. It keeps its settings, with a warning if these differ
        from those that the model learned with.

        Args:
            env: the environment to learn in.
            num_timesteps: number of steps that the model has learned for.
        """
        self._give(env)
        known, own = self.known, unwrap_vec_normalize(env)
        if known is own:
            return env
        if known is None:
            if own is not None and own.norm_obs and num_timesteps > 0:
                advise(
                    "normalisation of what was learned without",
                    f"the model has learned for {num_timesteps} steps from observations that were not normalised, and "
                    "env normalises them: what it sees has another scale now. Pass env without VecNormalize, or with "
                    "norm_obs=False.",
                )
            return env
        if own is None:
            if self.loaded is None:
                return env
            state = known.state_dict()
            wrapped = wrapped_beneath(env, self._above, lambda venv: VecNormalize.from_state_dict(venv, state))
            if wrapped is None:
                self.check_nothing_above(f"env is not in a {self._above[0]}")
            return wrapped or env
        if not known.has_seen_data:
            return env
        if own.has_seen_data:
            kept = None if own.same_statistics(known) else "it has statistics of its own"
        else:
            kept = own.take_statistics(known)
        if kept is not None:
            warn_user(
                f"env has a VecNormalize that does not take the statistics which the model learned with: {kept}. They "
                "are taken by an environment without VecNormalize, or with a new one of the same settings.",
                UserWarning,
            )
        elif differ := own.differences(known):
            warn_user(
                f"env has a VecNormalize with {as_settings(differ)}, and the model learned with "
                f"{as_settings(differ, 1)}: what it sees has another scale now. Pass env without VecNormalize, which "
                "takes the model's settings and statistics, or make it with these settings.",
                UserWarning,
            )
        return env

    def _give(self, env: VecEnv) -> None:
        """Give the model's statistics to the wrappers in an environment that have no data; warn about those that cannot
        take them."""
        known = self.of_wrappers
        if not have_data(known) or (self.env is not None and env.unwrapped is self.env.unwrapped):
            return
        try:
            found = env.get_statistics()
        except EnvStateError as error:
            warn_user(_otherwise(_first(known), str(error)))
            return
        given = for_envs(known, env.num_envs)
        why = [obstacles(one, own) for one, own in zip(given, found, strict=True)]
        for key, reason in {key: reason for each in why for key, reason in each.items()}.items():
            warn_user(_otherwise(key, reason))
        taken = [own.keys() & one.keys() - not_.keys() for one, own, not_ in zip(given, found, why, strict=True)]
        env.set_statistics([{key: one[key] for key in keys} for one, keys in zip(given, taken, strict=True)])


def as_trained(model: Any, env: VecEnv) -> AbstractContextManager[None]:
    """Returns :meth:`Normalisation.lent` of a model; does nothing for other actors, such as a policy."""
    learned = getattr(model, "normalisation", None)
    return nullcontext() if learned is None else learned.lent(env)


def _otherwise(key: str, reason: str) -> str:
    """Returns the warning about an environment that cannot take the statistics called ``key``."""
    fix = {MISSING: f" Wrap it as in training, with {_wrapper(key)}.", OWN: f" Pass one with a new {_wrapper(key)}."}
    return (
        f"the model learned from what a {_wrapper(key)} with running statistics returned, and env does not take these, "
        f"so that what it sees has another scale: {reason.rstrip('.')}.{fix.get(reason, '')}"
    )


def _first(found: list[Found]) -> str:
    return next(key for each in found for key in each)


def _wrapper(key: str) -> str:
    """The class in the name of statistics."""
    return key.partition(".")[0]


def _advise_on_layers(env: VecEnv) -> None:
    """Warn of wrappers that cause experience to be replayed with outdated statistics."""
    normalizer, above = unwrap_vec_normalize(env), above_normalisation(env)
    if normalizer is None:
        return
    changed = {"observations": above.observations if normalizer.norm_obs else ()}
    changed["rewards"] = above.rewards if normalizer.norm_reward else ()
    for what, names in changed.items():
        if names:
            advise(
                f"wrappers around VecNormalize that change {what}",
                f"{names[0]} stands around VecNormalize and changes {what}: they are stored as it returns them, "
                "normalised by the statistics of that time, not by the newest ones whenever they are replayed. To "
                f"have that, put VecNormalize around {names[0]}. If it changes no {what}, name them in its class: "
                f"passes_on = ({what!r},).",
            )
