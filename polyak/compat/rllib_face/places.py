"""Where experience is collected and where it is learned from: in this process, or in others.

With ``num_env_runners`` and ``num_learners`` of 0 nothing imports Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyak.compat.rllib_face.config.base import AlgorithmConfig, Plain
from polyak.compat.rllib_face.environments import Spaces, make_environments
from polyak.compat.rllib_face.errors import NotThereYetError
from polyak.compat.rllib_face.processes.runners import environments_elsewhere
from polyak.envs import VecEnv
from polyak.experience.memory import InsufficientMemoryError
from polyak.warning import advise


def check_processes(config: AlgorithmConfig, steps_are_shown: bool = False) -> None:
    """Refuse processes that cannot be made yet, before anything is made.

    Args:
        config: what is asked for.
        steps_are_shown: whether callbacks are to see episodes step by step.

    Raises:
        NotThereYetError: naming the setting.
    """
    for name in ("num_env_runners", "evaluation_num_env_runners"):
        if steps_are_shown and getattr(config, name) > 0:
            raise NotThereYetError(
                f"{name}={getattr(config, name)}: callbacks see the steps of episodes in this process alone. Use 0, or "
                "on_episode_end."
            )
    asked = config.num_env_runners > 0 or config.num_learners > 0
    if config.num_aggregator_actors_per_learner > 0:
        raise NotThereYetError(
            f"num_aggregator_actors_per_learner={config.num_aggregator_actors_per_learner}: so far batches are put "
            "together in this process. Use 0."
        )
    if asked and (config.torch_ddp_kwargs or config.create_env_on_local_worker):
        name = "torch_ddp_kwargs" if config.torch_ddp_kwargs else "create_env_on_local_worker"
        raise NotThereYetError(f"{name}={getattr(config, name)!r} is not carried out so far. Leave it out.")


def make_places(config: AlgorithmConfig, created: Callable[..., None] | None) -> tuple[VecEnv, Spaces]:
    """The environments as the model here sees them, perhaps those of runners in other processes, and their spaces."""
    if config.num_env_runners == 0:
        env = make_environments(config, training=True, created=created)
        return env, Spaces.of(env)
    remote = environments_elsewhere(config)
    try:
        return remote.normalized(), remote.ask_present("spaces")[0]
    except BaseException:
        remote.close()
        raise


def of_others(config: AlgorithmConfig, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Which of the model's keyword arguments are others where other processes do its work.

    Args:
        config: what to make.
        kwargs: as they would be without.
    """
    found: dict[str, Any] = {}
    if config.num_learners > 0:
        found["device"] = "cpu"  # theirs may be the only GPUs
        if "n_epochs" in kwargs:  # a minibatch has as many rows for each of them
            rows = kwargs["n_steps"] * config.num_envs_per_env_runner * max(1, config.num_env_runners)
            found["batch_size"] = min(kwargs["batch_size"] * config.num_learners, rows)
    if config.num_env_runners > 0:
        found["n_runners"] = config.num_env_runners
        if "gradient_steps" in kwargs:  # as many for each fragment as there would be here
            found["gradient_steps"] = kwargs["gradient_steps"] * config.num_env_runners
            found["overlap"] = config.seed is None
            exact = config.seed is not None and config.num_env_runners == 1  # the numbers of one process
            if exact or config.batch_mode == "complete_episodes":
                found["steps_per_request"] = 0
    return found


def made(config: AlgorithmConfig, plain: Plain, env: Any) -> Any:
    """The model. A replay buffer that would not fit into memory keeps observations once, or goes into a temporary file,
    unless ``replay_buffer_config`` says otherwise.

    Raises:
        InsufficientMemoryError: it says where, and there is no room.
    """
    given = config.get("replay_buffer_config", {})
    ways: list[dict[str, Any]] = [{}]
    if "buffer_size" in plain.kwargs and not {"storage_device", "num_replay_buffer_shards"} & given.keys():
        once = {} if "optimize_memory_usage" in given else {"optimize_memory_usage": True}
        ways += [once, {**once, "replay_buffer_kwargs": {"storage_device": "disk"}}]
    for way in ways:
        try:
            model = plain.algorithm(plain.policy, env, **{**plain.kwargs, **way})
        except InsufficientMemoryError as error:
            refusal = error
            continue
        plain.kwargs.update(way)
        if "replay_buffer_kwargs" in way:
            advise(
                "a replay buffer on disk",
                f"replay_buffer_config['capacity']={plain.kwargs['buffer_size']:,}: the buffer does not fit into "
                "memory, and is in a temporary file. A smaller capacity, or uint8 images, are quicker.",
            )
        return model
    raise refusal
