"""Tuned settings: those of an algorithm's card, one block per environment, checked against its constructor.

A block's keys are the constructor's parameters plus the keys of `RUN_KEYS`, for the run: number of steps and
environments, normalisation, wrappers. Files are plain YAML and no value is ever executed; those of RL Baselines3 Zoo
are read as they are. `untrusted` decides what a block may contain.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyak.algorithms import registered_as
from polyak.compat.sb3_face.recurrent.options import to_polyak
from polyak.envs.reading.untrusted import MOST, MOST_TOGETHER, MOST_VALUES, numbers_in, weight
from polyak.hyperparameters.declaration import as_declared
from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.literals import parse_value
from polyak.zoo.output import note
from polyak.zoo.own_code import errors_of_own_code, import_module, load_file
from polyak.zoo.plain_yaml import read_yaml_file
from polyak.zoo.registry import is_atari_id, parameter_names, registered_name
from polyak.zoo.sizes import MOST_ENVS, MOST_FRAMES, MOST_STEPS, whole_number
from polyak.zoo.untrusted import OTHERS, USER, NamedClass, ZooAuthor, kind_of

#: Keys that are not constructor parameters, and their meanings.
RUN_KEYS: dict[str, str] = {
    "n_timesteps": "environment steps to train for",
    "n_envs": "number of training environments",
    "policy": "policy name (MlpPolicy, CnnPolicy, MultiInputPolicy) or import path of a policy class",
    "normalize": "True, or keyword arguments of VecNormalize",
    "frame_stack": "number of frames given to the policy at once",
    "env_wrapper": "import path of a gymnasium wrapper, {path: kwargs}, or a list of these",
    "vec_env_wrapper": "the same for wrappers of vectorised environments",
    "callback": "the same for callbacks",
    "env_kwargs": "keyword arguments of gymnasium.make",
    "monitor_kwargs": "keyword arguments of Monitor",
    "noise_type": "action noise: normal or ornstein-uhlenbeck",
    "noise_std": "standard deviation of the action noise, in units of scaled actions",
}
_SCHEDULED = ("learning_rate", "critic_learning_rate", "clip_range", "clip_range_vf", "delta_std", "epsilon")
_IMPORTED = ("env_wrapper", "vec_env_wrapper", "callback")
_VERBATIM = (*_IMPORTED, "policy", "noise_type")
_YAML = (".yml", ".yaml")


@dataclass
class Settings:
    """How to train one algorithm on one environment.

    ``raw`` is the content of the settings, as plain data (it becomes config.yml); ``source`` is its origin;
    ``arguments`` are for the algorithm's constructor; ``author`` wrote the settings, except those in ``typed``, which
    the user typed; ``policy_is_open`` is whether none of them chose the policy for this environment; the other fields
    are `RUN_KEYS`, interpreted.
    """

    raw: dict[str, Any]
    source: str
    n_timesteps: int
    n_envs: int = 1
    policy: Any = "MlpPolicy"
    normalize: dict[str, Any] | None = None
    frame_stack: int | None = None
    env_wrapper: list[NamedClass] = field(default_factory=list)
    vec_env_wrapper: list[NamedClass] = field(default_factory=list)
    callback: list[NamedClass] = field(default_factory=list)
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    monitor_kwargs: dict[str, Any] = field(default_factory=dict)
    noise_type: str | None = None
    noise_std: float = 0.0
    arguments: dict[str, Any] = field(default_factory=dict)
    author: ZooAuthor = OTHERS
    typed: frozenset[str] = frozenset()
    policy_is_open: bool = False

    @property
    def classes(self) -> list[NamedClass]:
        """The named wrappers and callbacks."""
        return [*self.env_wrapper, *self.vec_env_wrapper, *self.callback]

    def find_classes(self) -> Settings:
        """Import all named classes, and a named policy, so that mistakes are found before anything is made."""
        for named in self.classes:
            named.find()
        if isinstance(self.policy, NamedClass):
            self.policy = self.policy.find()
        return self

    def check_classes(self) -> None:
        """Check named classes as `find_classes` does, except those of packages that may not be installed here."""
        for named in [*self.classes, *([self.policy] if isinstance(self.policy, NamedClass) else [])]:
            if named.is_ours:
                named.find()

    def is_trusted(self, key: str) -> bool:
        """Whether the value of `key` is the user's own, or from a file that is trusted."""
        return self.author.is_trusted or key in self.typed

    @property
    def gamma(self) -> float:
        """The discount factor of the run, for the normalisation of rewards."""
        return float(self.arguments.get("gamma", 0.99))

    def action_noise(self, n_actions: int) -> Any:
        """Build the action noise for `n_actions` scaled action dimensions, or return None."""
        if self.noise_type is None:
            return None
        import numpy as np

        from polyak.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

        kind = NormalActionNoise if self.noise_type == "normal" else OrnsteinUhlenbeckActionNoise
        return kind(mean=np.zeros(n_actions), sigma=np.full(n_actions, self.noise_std))


def load_settings(
    algorithm: type[Any],
    algo: str,
    env_id: str,
    conf_file: str | None = None,
    overrides: dict[str, Any] | None = None,
    *,
    trust: bool = False,
    packages: Iterable[str] = (),
) -> Settings:
    """Find the block of `env_id` in the settings of `algo` (or in `conf_file`), apply `overrides`, check and read it.

    A block is found by exact id, then ``atari`` for Atari games, then the same environment in another version, then
    ``default``. `overrides` were typed by the user, and are trusted. So is Python code that `conf_file` names; a YAML
    file may have come from others and may name what `untrusted` allows, including `packages`, unless `trust` is set.

    Raises:
        ZooError: unknown keys, with the closest valid ones; wrong values; names that are missing or not allowed.
    """
    blocks, source = read_conf_file(conf_file) if conf_file else tuned_blocks(algorithm)
    key = _choose_block(blocks, env_id, source)
    raw = {**blocks[key], **(overrides or {})}
    of_others = Path(conf_file).suffix in _YAML if conf_file else False
    author = ZooAuthor.of_file(trust, packages) if of_others else USER
    if not conf_file:
        raw = _taken(algorithm, algo, raw, source, overrides or {})
    settings = interpret(algorithm, algo, raw, f"{source} [{key}]", author, frozenset(overrides or {}))
    is_ours = key == "default" and not conf_file
    settings.policy_is_open = "policy" not in ((overrides or {}) if is_ours else raw)
    return settings.find_classes()


def tuned_blocks(algorithm: type[Any]) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the blocks of an algorithm's card, and a name for their origin; without any, its defaults alone.

    Raises ZooError if the file that the card names is not there, or holds no blocks.
    """
    owner = next((kind for kind in algorithm.__mro__ if "card" in vars(kind)), algorithm)
    settings = owner.card.settings if hasattr(owner, "card") else {}
    source = f"tuned settings of {registered_as(owner) or owner.__name__}"
    file = Path(getattr(sys.modules[owner.__module__], "__file__", None) or "none")
    if settings == {} or (settings == "" and not file.with_suffix(".yml").is_file()):
        return {"default": {}}, f"the defaults of {algorithm.__name__}"
    if not isinstance(settings, str):
        return _checked(settings, source), source
    path = file.with_name(settings or f"{file.stem}.yml")
    if not path.is_file():
        raise ZooError(f"The card of {owner.__name__} names settings={settings!r}, but there is no file {path}.")
    return _checked(read_yaml_file(path, source) or {}, source), source


def _taken(
    algorithm: type[Any], algo: str, raw: dict[str, Any], source: str, overrides: dict[str, Any]
) -> dict[str, Any]:
    """Leave out settings that were tuned for the base class of a user's algorithm, but are not its arguments."""
    if "card" in vars(algorithm):
        return raw
    known = {*parameter_names(algorithm), *RUN_KEYS}
    foreign = [key for key in raw if key not in known and key not in overrides]
    if foreign:
        note(f"{algorithm.__name__} does not take {', '.join(foreign)} of the {source}: left out.")
    return {key: value for key, value in raw.items() if key not in foreign}


def read_conf_file(conf_file: str) -> tuple[dict[str, dict[str, Any]], str]:
    """Return all blocks of `conf_file`, and a name for their origin.

    It is a YAML file, or Python code that the user names: a ``.py`` file or a module (``my.settings``) with a dict
    called ``hyperparams``, which is run. Raises ZooError if there is none, or it does not hold blocks.
    """
    suffix = Path(conf_file).suffix
    if suffix in (*_YAML, ".py") and not Path(conf_file).is_file():
        raise ZooError(f"--conf-file {conf_file!r} does not exist.")
    of_yaml = suffix in _YAML
    blocks = (read_yaml_file(Path(conf_file), conf_file) or {}) if of_yaml else _python_blocks(conf_file)
    return _checked(blocks, conf_file), conf_file


def _checked(blocks: Any, source: str) -> dict[str, dict[str, Any]]:
    if not isinstance(blocks, Mapping) or not all(isinstance(block, Mapping) for block in blocks.values()):
        raise ZooError(f"{source} must map environment ids to blocks of key: value lines.")
    return {key: dict(block) for key, block in blocks.items()}


def _python_blocks(conf_file: str) -> Any:
    """Run the Python file or module that --conf-file names, and return its ``hyperparams``."""
    if conf_file.endswith(".py"):
        path = Path(conf_file).expanduser().resolve()
        with errors_of_own_code(f"--conf-file {conf_file!r}: the file cannot be loaded", str(path)):
            module = load_file(path)
    elif re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", conf_file):
        module = import_module(conf_file, "that should hold settings (--conf-file)")
    else:
        raise ZooError(f"--conf-file {conf_file!r} must be a .yml or .py file, or the name of a Python module.")
    if not hasattr(module, "hyperparams"):
        raise ZooError(f"--conf-file {conf_file!r} has no dict called hyperparams, of environment ids and settings.")
    return module.hyperparams


def _choose_block(blocks: dict[str, dict[str, Any]], env_id: str, source: str) -> str:
    if env_id in blocks:
        return env_id
    if is_atari_id(env_id) and "atari" in blocks:
        return "atari"
    base = re.sub(r"-v\d+$", "", env_id)
    versions = sorted(name for name in blocks if re.fullmatch(rf"{re.escape(base)}-v\d+", name))
    if versions:
        return versions[-1]
    if "default" in blocks:
        return "default"
    raise ZooError(
        f"No settings for --env {env_id!r} in {source}, and no block named default.{did_you_mean(env_id, blocks)}"
    )


def interpret(
    algorithm: type[Any],
    algo: str,
    raw: dict[str, Any],
    source: str,
    author: ZooAuthor = OTHERS,
    typed: frozenset[str] = frozenset(),
) -> Settings:
    """Check the keys of `raw` against `algorithm`'s constructor and turn its values into objects; imports no name.

    `author` wrote the settings, except the keys in `typed`, which the user typed. Raises ZooError for unknown keys,
    wrong values, and names and arguments that the author may not use; it names the `source` of others' settings.
    """
    try:
        return _interpreted(algorithm, algo, raw, source, author, typed)
    except ZooError as error:
        if author.is_trusted or source in str(error):
            raise
        raise ZooError(f"{source}: {error}") from error


def _interpreted(
    algorithm: type[Any], algo: str, raw: dict[str, Any], source: str, author: ZooAuthor, typed: frozenset[str]
) -> Settings:
    parameters = set(parameter_names(algorithm))
    valid = sorted((parameters | set(RUN_KEYS)) - {"_init_setup_model"})
    for key in raw:
        if key not in valid:
            raise ZooError(
                f"Unknown setting {key!r:.200} for {algo} ({source}).{did_you_mean(str(key), valid)} "
                f"Valid names: {', '.join(valid)}."
            )
    authors = {key: USER if key in typed else author for key in valid}
    values = {key: value if key in _VERBATIM else _read(value) for key, value in raw.items()}
    for key, value in as_declared(algorithm, values).items():
        if key not in (*_VERBATIM, "n_envs", "n_timesteps", "frame_stack"):  # which are checked below
            authors[key].check_values(value, source=source, key=key, kind=kind_of(key))
    run = {key: values.pop(key) for key in list(values) if key in RUN_KEYS}
    _set_algorithm_conventions(values, algorithm)
    settings = Settings(
        raw=raw,
        source=source,
        n_timesteps=whole_number("n_timesteps", run.get("n_timesteps", 100_000), MOST_STEPS),
        n_envs=whole_number("n_envs", run.get("n_envs", 1), MOST_ENVS if authors["n_envs"].is_trusted else MOST),
        policy=_policy(run.get("policy", "MlpPolicy"), source, authors["policy"]),
        normalize=_normalize(run.get("normalize")),
        frame_stack=whole_number("frame_stack", run["frame_stack"], MOST_FRAMES) if run.get("frame_stack") else None,
        env_wrapper=_named("env_wrapper", run.get("env_wrapper"), source, authors["env_wrapper"]),
        vec_env_wrapper=_named("vec_env_wrapper", run.get("vec_env_wrapper"), source, authors["vec_env_wrapper"]),
        callback=_named("callback", run.get("callback"), source, authors["callback"]),
        env_kwargs=_mapping("env_kwargs", run.get("env_kwargs")),
        monitor_kwargs=_mapping("monitor_kwargs", run.get("monitor_kwargs")),
        arguments=values,
        author=author,
        typed=typed,
    )
    _set_noise(settings, run, "action_noise" in parameters, algo)
    _check_together(settings, authors)
    return settings


def _check_together(settings: Settings, authors: Mapping[str, ZooAuthor]) -> None:
    """Refuse settings that are too large only in combination: a thousand environments, of a thousand frames, of large
    images."""
    given = {key: getattr(settings, key) for key in ("n_envs", "frame_stack") if not authors[key].is_trusted}
    wrappers = [named for named in (*settings.env_wrapper, *settings.vec_env_wrapper) if not named.author.is_trusted]
    made = math.prod([*filter(None, given.values()), *(n for named in wrappers for n in numbers_in(named.kwargs))])
    if not authors["env_kwargs"].is_trusted:  # a number of environments, of maps of a thousand rows
        made = max(made, MOST_TOGETHER // MOST_VALUES // 10 * given.get("n_envs", 1) * weight(settings.env_kwargs))
    if made > MOST_TOGETHER:
        raise ZooError(
            f"{settings.source}: n_envs, frame_stack, the numbers of wrappers and the length of env_kwargs multiply to "
            f"{made:,}, and a file of others may ask for {MOST_TOGETHER:,}. {OTHERS.way_out}"
        )


def fit_batch(settings: Settings) -> str:
    """Reduce ``batch_size`` to a whole rollout if `settings` have a larger one, as the Zoo has for some tasks.

    Changes ``settings.arguments`` in place and returns a sentence about it, which is empty without a change.
    """
    batch, steps = settings.arguments.get("batch_size"), settings.arguments.get("n_steps")
    if not isinstance(batch, int) or not isinstance(steps, int) or batch <= steps * settings.n_envs:
        return ""
    rows = steps * settings.n_envs
    settings.arguments["batch_size"] = rows
    return (
        f"batch_size={batch} of {settings.source} is more than the {rows} rows of a rollout: minibatches have {rows}."
    )


def _read(value: Any) -> Any:
    """Interpret strings (numbers, allowed names, ``dict(...)``) at any depth of a YAML value."""
    if isinstance(value, str):
        return parse_value(value)
    if isinstance(value, dict):
        return {key: _read(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_read(item) for item in value]
    return value


def _set_algorithm_conventions(values: dict[str, Any], algorithm: type[Any]) -> None:
    """Apply ``lin_<value>`` schedules, make ``train_freq: [n, unit]`` a tuple, read sb3-contrib's words; in place."""
    for key in _SCHEDULED:
        value = values.get(key)
        if isinstance(value, str) and value != "1/n":  # averages, in tables
            values[key] = _schedule(key, value)
    if isinstance(values.get("train_freq"), list):
        values["train_freq"] = tuple(values["train_freq"])
    if isinstance(values.get("policy_kwargs"), dict) and registered_name(algorithm) == "recurrent_ppo":
        values["policy_kwargs"] = to_polyak(values["policy_kwargs"])  # lstm_hidden_size -> memory_size ...


def _schedule(key: str, text: str) -> Any:
    from polyak.schedules import parse_schedule

    try:
        return parse_schedule(text)
    except ValueError as error:
        raise ZooError(f"{key}: {error}") from error


def _policy(value: Any, source: str, author: ZooAuthor) -> Any:
    if not (isinstance(value, str) and "." in value):
        author.check_values(value, source=source, key="policy")
        return value
    named = NamedClass(value, {}, "policy", source, author)
    named.check()
    return named


def _normalize(value: Any) -> dict[str, Any] | None:
    if value is None or value is False:
        return None
    return {} if value is True else _mapping("normalize", value)


def _mapping(key: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ZooError(f"{key} must be a mapping such as {{name: value}}, got {value!r:.200}.")
    if wrong := [name for name in value if not isinstance(name, str)]:
        raise ZooError(f"{key} has {wrong[0]!r:.200} for the name of an argument. Names are words.")
    return value


def _named(key: str, value: Any, source: str, author: ZooAuthor) -> list[NamedClass]:
    """Read ``path``, ``{path: kwargs}`` or a list of these, and check the named classes."""
    specs: list[NamedClass] = []
    for item in value if isinstance(value, list | tuple) else [value] if value else []:
        path, kwargs = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else (item, None)
        if not isinstance(path, str):
            raise ZooError(f"{key}: {item!r:.200} is neither an import path nor {{path: {{name: value}}}}.")
        specs.append(NamedClass(path, _mapping(f"{key} {path}", _read(kwargs)), key, source, author))
        specs[-1].check()
    return specs


def _set_noise(settings: Settings, run: dict[str, Any], takes_noise: bool, algo: str) -> None:
    kind = run.get("noise_type")
    if kind is None or kind == "none":
        return
    if kind not in ("normal", "ornstein-uhlenbeck"):
        raise ZooError(
            f"noise_type must be normal or ornstein-uhlenbeck, got {kind!r}.{did_you_mean(str(kind), ['normal'])}"
        )
    if not takes_noise:
        raise ZooError(
            f"noise_type {kind!r} cannot be used: {algo} takes no action noise. Remove noise_type and noise_std."
        )
    std = run.get("noise_std", 0.1)
    if isinstance(std, bool) or not isinstance(std, int | float) or not 0 <= std < float("inf"):
        raise ZooError(f"noise_std must be a number of at least 0, got {std!r:.200}.")
    settings.noise_type, settings.noise_std = str(kind), float(std)
