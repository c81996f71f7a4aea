"""Saving, loading and going on."""

import io
from typing import Any

import numpy as np
import torch
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


def _model(cls: Any, **options: Any) -> Any:
    env = worlds.Counting() if cls is DQN else worlds.Counting(action_space=BOX)
    replay = {} if cls in (A2C, PPO) else {"buffer_size": 60, "learning_starts": 5, "batch_size": 4}
    rollout = {"n_steps": 16} if cls is PPO else {}
    return cls("MlpPolicy", env, device="cpu", seed=0, **replay, **rollout, **options)


def round_trip(folder: Any) -> Any:
    """The same predictions and counters after loading, with and without an environment."""
    found = {}
    observations = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    for cls in (A2C, PPO, DQN, SAC, TD3, DDPG):
        model = _model(cls).learn(20)
        model.save(folder / cls.__name__)
        loaded = cls.load(folder / cls.__name__, device="cpu")
        again = cls.load(folder / cls.__name__, env=model.get_env(), device="cpu")
        expected = model.predict(observations, deterministic=True)[0]
        found[cls.__name__] = [
            np.array_equal(expected, loaded.predict(observations, deterministic=True)[0]),
            loaded.num_timesteps == model.num_timesteps,
            loaded._n_updates == model._n_updates,
            loaded.get_env() is None,
            again.get_env() is not None,
            again.learn(20).num_timesteps,
            again.learn(20, reset_num_timesteps=False).num_timesteps,
        ]
    return found


def optimizer_state(folder: Any) -> Any:
    """Momenta are saved."""
    model = _model(PPO).learn(16)
    model.save(folder / "m")
    mine = model.policy.optimizer.state_dict()["state"][0]
    theirs = PPO.load(folder / "m", device="cpu").policy.optimizer.state_dict()["state"][0]
    return [
        sorted(mine),
        torch.allclose(mine["exp_avg"], theirs["exp_avg"]),
        float(mine["step"]) == float(theirs["step"]),
    ]


def overrides(folder: Any) -> Any:
    """Other values at loading: by keyword, by custom_objects; other numbers of environments; wrong policy_kwargs."""
    model = _model(PPO, learning_rate=lambda progress: 1e-3 * progress)
    model.save(folder / "m")
    objects = {"learning_rate": 5e-4, "lr_schedule": lambda progress: 5e-4, "clip_range": lambda progress: 0.1}
    two = make_vec_env(lambda: worlds.Counting(action_space=BOX), 2)
    loaded = PPO.load(folder / "m", env=two, custom_objects=objects, n_epochs=3, gamma=0.5, device="cpu")
    try:
        PPO.load(folder / "m", custom_objects=objects, policy_kwargs={"net_arch": [3]}, device="cpu")
        refused = False
    except ValueError:
        refused = True
    return [loaded.n_envs, loaded.n_epochs, loaded.gamma, loaded.lr_schedule(1.0), refused, loaded.learning_rate]


def lambdas(folder: Any) -> Any:
    """A function as learning rate comes back."""
    model = _model(PPO, learning_rate=lambda progress: 1e-3 * progress)
    model.save(folder / "m")
    return PPO.load(folder / "m", device="cpu").lr_schedule(0.5)


def other_environment(folder: Any) -> Any:
    """An environment with other spaces is a mistake."""
    _model(PPO).save(folder / "m")
    return PPO.load(folder / "m", env=worlds.Counting())


def open_files() -> Any:
    """Files in memory."""
    model = _model(SAC).learn(10)
    file, buffer = io.BytesIO(), io.BytesIO()
    model.save(file)
    model.save_replay_buffer(buffer)
    file.seek(0)
    buffer.seek(0)
    loaded = SAC.load(file, env=model.get_env(), device="cpu")
    loaded.load_replay_buffer(buffer)
    return [loaded.replay_buffer.size(), bool((loaded.replay_buffer.actions == model.replay_buffer.actions).all())]


def buffers(folder: Any) -> Any:
    """Replay buffers are files of their own; a loaded model has an empty one."""
    model = _model(DQN).learn(30)
    model.save(folder / "m")
    model.save_replay_buffer(folder / "b")
    loaded = DQN.load(folder / "m", device="cpu")
    before = loaded.replay_buffer.size()
    loaded.load_replay_buffer(folder / "b")
    same = np.array_equal(loaded.replay_buffer.rewards, model.replay_buffer.rewards)
    return [before, loaded.replay_buffer.size(), loaded.replay_buffer.pos, bool(same)]


def set_env() -> Any:
    """Another environment: forgetting the last observation, or not."""
    model = _model(A2C).learn(10)
    kept = model._last_obs is not None
    model.set_env(DummyVecEnv([lambda: worlds.Counting(action_space=BOX)]), force_reset=False)
    still = model._last_obs is not None
    model.set_env(DummyVecEnv([lambda: worlds.Counting(action_space=BOX)]))
    forgotten = model._last_obs is None
    return [kept, still, forgotten, model.learn(10).num_timesteps]


def excluded(folder: Any) -> Any:
    """``exclude`` and ``include``, and what no file has."""
    model = _model(SAC).learn(10)
    model.extra = "mine"
    model.save(folder / "m", exclude=["verbose"])
    loaded = SAC.load(folder / "m", device="cpu")
    return [hasattr(loaded, "extra") and loaded.extra, loaded.verbose, loaded.tensorboard_log, loaded.n_envs]


def subclasses(folder: Any) -> Any:
    """A user's own subclass with its own constructor."""

    class Mine(PPO):
        def __init__(self, *args: Any, flavour: str = "plain", **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.flavour = flavour

    model = Mine("MlpPolicy", worlds.Counting(), flavour="sweet", n_steps=16, device="cpu").learn(16)
    model.save(folder / "m")
    loaded = Mine.load(folder / "m", device="cpu")
    return [loaded.flavour, type(loaded).__name__, loaded.num_timesteps]


def policies(folder: Any) -> Any:
    """A policy by itself."""
    found = []
    observations = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    for cls in (PPO, SAC, TD3, DQN):
        model = _model(cls)
        model.policy.save(str(folder / "p"))
        loaded = type(model.policy).load(str(folder / "p"))
        pair = [policy.predict(observations, deterministic=True)[0] for policy in (model.policy, loaded)]
        found.append(bool(np.array_equal(*pair)))
    return found


def flat_parameters() -> Any:
    """Parameters as one vector, and back."""
    policy = _model(PPO).policy
    vector = policy.parameters_to_vector()
    policy.load_from_vector(vector * 0 + 1)
    return [vector.shape, str(vector.dtype), float(policy.parameters_to_vector().sum()) == vector.size]


def normalisation(folder: Any) -> Any:
    """get_vec_normalize_env."""
    env = VecNormalize(make_vec_env(worlds.Counting, 1))
    model = A2C("MlpPolicy", env, device="cpu")
    return [model.get_vec_normalize_env() is env, A2C("MlpPolicy", worlds.Counting()).get_vec_normalize_env() is None]


def attributes() -> Any:
    """Attributes of models after learning: those of the first are in the second."""
    wanted = [
        "policy",
        "policy_class",
        "policy_kwargs",
        "env",
        "device",
        "num_timesteps",
        "seed",
        "learning_rate",
        "lr_schedule",
        "verbose",
        "use_sde",
        "ep_info_buffer",
        "ep_success_buffer",
        "observation_space",
        "action_space",
        "n_envs",
        "logger",
        "start_time",
        "tensorboard_log",
        "_last_obs",
        "_last_episode_starts",
        "_n_updates",
        "_episode_num",
        "_total_timesteps",
        "_num_timesteps_at_start",
        "_current_progress_remaining",
        "_vec_normalize_env",
        "_stats_window_size",
        "action_noise",
        "gamma",
    ]
    own = {
        PPO: "n_steps gae_lambda ent_coef vf_coef max_grad_norm rollout_buffer batch_size n_epochs clip_range "
        "target_kl",
        DQN: "buffer_size batch_size learning_starts tau train_freq replay_buffer q_net q_net_target exploration_rate "
        "exploration_schedule target_update_interval _n_calls n_steps optimize_memory_usage",
        SAC: "actor critic critic_target ent_coef log_ent_coef ent_coef_optimizer target_entropy replay_buffer_class",
        TD3: "actor actor_target critic critic_target policy_delay target_policy_noise target_noise_clip",
    }
    found = {}
    for cls, names in own.items():
        model = _model(cls).learn(20)
        found[cls.__name__] = {name: hasattr(model, name) for name in [*wanted, *names.split()]}
    return found


def attribute_values() -> Any:
    """Values of those that are plain."""
    found = {}
    for cls in (A2C, PPO, DQN, SAC, TD3, DDPG):
        model = _model(cls).learn(20)
        found[cls.__name__] = [
            model.num_timesteps,
            model._n_updates,
            model._episode_num,
            model._total_timesteps,
            model.n_envs,
            model._current_progress_remaining,
            str(model.device),
            len(model.ep_info_buffer),
            model.seed,
            np.shape(model._last_obs),
            np.shape(model._last_episode_starts),
            model.policy_class.__name__,
        ]
    model = _model(SAC)
    found["train_freq"] = [model.train_freq.frequency, str(model.train_freq.unit.value), model.target_entropy]
    found["clip_range"] = [callable(_model(PPO).clip_range), _model(PPO).clip_range(1.0)]
    return found


def changed_while_learning() -> Any:
    """Callbacks may change values that the next update uses."""

    class Change(BaseCallback):
        def _on_step(self) -> bool:
            self.model.ent_coef = 0.5
            self.model.gamma = 0.1
            return True

    model = _model(A2C).learn(10, callback=Change())
    return [model.ent_coef, model.gamma]
