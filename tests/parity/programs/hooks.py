"""Callbacks: which hooks are called when, what they see, what is counted."""

from typing import Any

import numpy as np
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    ConvertCallback,
    EvalCallback,
    EventCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor


class Recorder(BaseCallback):
    """Writes down every call.

    Args:
        stop_at: ``_on_step`` gives False at this call.
    """

    def __init__(self, stop_at: int = -1) -> None:
        super().__init__()
        self.stop_at = stop_at
        self.calls: list[Any] = []

    def _note(self, hook: str) -> None:
        self.calls.append(f"{hook} {self.n_calls} {self.num_timesteps}")

    def _init_callback(self) -> None:
        self.calls.append(f"init {self.model is not None} {self.parent is None}")

    def _on_training_start(self) -> None:
        self._note("training_start")

    def _on_rollout_start(self) -> None:
        self._note("rollout_start")

    def _on_step(self) -> bool:
        self._note("step")
        return self.n_calls != self.stop_at

    def _on_rollout_end(self) -> None:
        self._note("rollout_end")

    def _on_training_end(self) -> None:
        self._note("training_end")


class Locals(BaseCallback):
    """Keeps what the loop shows at chosen hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Any] = {}

    def _keep(self, hook: str) -> None:
        self.seen.setdefault(hook, dict(self.locals))

    def _on_training_start(self) -> None:
        self._keep("training_start")

    def _on_step(self) -> bool:
        self._keep("step")
        return True

    def _on_rollout_end(self) -> None:
        self._keep("rollout_end")


def _on_policy(cls: Any, **options: Any) -> Any:
    return cls("MlpPolicy", make_vec_env(worlds.Counting, 2), n_steps=4, device="cpu", seed=0, **options)


def _off_policy(cls: Any, n_envs: int = 1, **options: Any) -> Any:
    world = worlds.Counting if cls is DQN else worlds.Target
    small = {"learning_starts": 6, "buffer_size": 50, "batch_size": 4, "device": "cpu", "seed": 0}
    return cls("MlpPolicy", make_vec_env(world, n_envs), **small, **options)


def order_on_policy() -> Any:
    """Every hook of A2C over two rollouts and of PPO over one."""
    found = {}
    for cls, options in ((A2C, {}), (PPO, {"batch_size": 8})):
        recorder = Recorder()
        _on_policy(cls, **options).learn(12, callback=recorder)
        found[cls.__name__] = recorder.calls
    return found


def order_off_policy() -> Any:
    """Every hook, with updates after so many steps or after episodes, in one environment or several."""
    found = {}
    for name, model in {
        "DQN": _off_policy(DQN, train_freq=4),
        "SAC two": _off_policy(SAC, 2, train_freq=(3, "step"), gradient_steps=-1),
        "TD3 episode": _off_policy(TD3, train_freq=(1, "episode")),
    }.items():
        recorder = Recorder()
        model.learn(12, callback=recorder)
        found[name] = [recorder.calls, model.num_timesteps, model._n_updates, model._episode_num]
    return found


def stopping() -> Any:
    """False ends the training: what is still called, and what is counted."""
    found = {}
    for name, model in {"A2C": _on_policy(A2C), "DQN": _off_policy(DQN)}.items():
        recorder = Recorder(stop_at=7)
        model.learn(100, callback=recorder)
        found[name] = [recorder.calls[-4:], model.num_timesteps, model._n_updates]
    return found


def going_on() -> Any:
    """A second learn counts anew or goes on."""
    model = _on_policy(A2C)
    first, second, third = Recorder(), Recorder(), Recorder()
    model.learn(8, callback=first)
    model.learn(8, callback=second)
    model.learn(8, callback=third, reset_num_timesteps=False)
    return [first.calls[-1], second.calls[-1], third.calls[1], third.calls[-1], model.num_timesteps]


def locals_of_the_loop() -> Any:
    """Names that callbacks can read, for each algorithm and hook."""
    found = {}
    for cls in (A2C, PPO, DQN, SAC, TD3, DDPG):
        model = _on_policy(cls) if cls in (A2C, PPO) else _off_policy(cls)
        callback = Locals()
        model.learn(10, callback=callback)
        for hook, seen in callback.seen.items():
            found[f"{cls.__name__} {hook}"] = {name: 0 for name in sorted(seen) if not name.startswith("_")}
    return found


def values_of_the_loop() -> Any:
    """Shapes and dtypes of what callbacks read most."""
    found = {}
    wanted = ("rewards", "dones", "infos", "new_obs", "actions", "clipped_actions", "values", "log_probs", "obs_tensor")
    wanted += ("buffer_actions", "num_collected_steps", "num_collected_episodes", "n_steps", "n_rollout_steps")
    for cls in (A2C, SAC):
        model = _on_policy(cls) if cls is A2C else _off_policy(cls, 2)
        callback = Locals()
        model.learn(10, callback=callback)
        seen = callback.seen["step"]
        found[cls.__name__] = {
            name: [type(seen[name]).__name__, list(np.shape(seen[name]))] for name in wanted if name in seen
        }
        found[f"{cls.__name__} self"] = seen["self"] is model
        found[f"{cls.__name__} env"] = seen["env"] is model.get_env()
    return found


def attributes() -> Any:
    """What a callback has while learning."""

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            self.found = [
                self.training_env is self.model.get_env(),
                self.logger is self.model.logger,
                self.parent is None,
                sorted(name for name in self.globals if name in ("np", "th", "torch")) != [],
                self.verbose,
                type(self.locals).__name__,
                self.n_calls,
                self.num_timesteps,
            ]
            return False

    look = Look()
    _on_policy(A2C).learn(10, callback=look)
    return look.found[:3] + look.found[4:]


def kinds() -> Any:
    """A function, a list, a nested list of callbacks, an event with a child."""
    calls: list[Any] = []
    _on_policy(A2C).learn(8, callback=lambda locals_, globals_: calls.append(sorted(locals_)[:1]) or True)
    one, two, three = Recorder(), Recorder(), Recorder()
    nested = CallbackList([one, CallbackList([two])])
    _on_policy(A2C).learn(8, callback=[nested, EveryNTimesteps(4, three)])
    return [len(calls), one.calls == two.calls, three.calls, isinstance(ConvertCallback(None), BaseCallback)]


def function_that_stops() -> Any:
    """A function that gives False."""
    return _on_policy(A2C).learn(50, callback=lambda locals_, globals_: False).num_timesteps


def every_n() -> Any:
    """EveryNTimesteps counts steps of all environments."""
    fired: list[int] = []

    class Fire(BaseCallback):
        def _on_step(self) -> bool:
            fired.append(self.num_timesteps)
            return True

    _on_policy(A2C).learn(40, callback=EveryNTimesteps(10, Fire()))
    return fired


def events() -> Any:
    """A child of an event sees the parent and stops the training."""

    class Event(EventCallback):
        def _on_step(self) -> bool:
            return self._on_event() if self.n_calls % 3 == 0 else True

    child = Recorder(stop_at=2)
    model = _on_policy(A2C).learn(100, callback=Event(child))
    return [child.calls, model.num_timesteps, child.parent is not None]


def evaluation_callback() -> Any:
    """``eval_freq`` counts calls; children see parent and results."""
    seen: list[Any] = []

    class After(BaseCallback):
        def _on_step(self) -> bool:
            seen.append([self.n_calls, self.num_timesteps, float(self.parent.last_mean_reward)])
            return True

    best = Recorder()
    told = {"callback_after_eval": After(), "callback_on_new_best": best}
    callback = EvalCallback(Monitor(worlds.Counting(3)), eval_freq=6, n_eval_episodes=2, verbose=0, **told)
    model = _on_policy(A2C).learn(40, callback=callback)
    logged = [float(callback.best_mean_reward), float(callback.last_mean_reward)]
    return [seen, best.calls, logged, callback.n_calls, model.num_timesteps, list(callback._is_success_buffer)]


def thresholds() -> Any:
    """Stopping at a return, without improvement, after episodes."""

    def env() -> Any:
        return Monitor(worlds.Counting(3))

    def steps(callback: Any) -> int:
        return _on_policy(A2C).learn(400, callback=callback).num_timesteps

    often = {"eval_freq": 10, "n_eval_episodes": 1, "verbose": 0}
    return [
        steps(EvalCallback(env(), StopTrainingOnRewardThreshold(5.0), **often)),
        steps(EvalCallback(env(), StopTrainingOnRewardThreshold(7.0), **often)),
        steps(EvalCallback(env(), callback_after_eval=StopTrainingOnNoModelImprovement(2, min_evals=3), **often)),
        steps(StopTrainingOnMaxEpisodes(5)),
    ]


def progress() -> Any:
    """What remains, as schedules see it."""
    seen: list[float] = []

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            seen.append(self.model._current_progress_remaining)

    _on_policy(A2C).learn(30, callback=Look())
    return seen


def action_space_of_callbacks() -> Any:
    """Actions as the loop has them before and after clipping."""
    env = worlds.Counting(action_space=spaces.Box(-0.01, 0.01, (2,), np.float32))
    callback = Locals()
    A2C("MlpPolicy", env, n_steps=4, device="cpu", seed=0).learn(4, callback=callback)
    seen = callback.seen["step"]
    clipped, raw = np.asarray(seen["clipped_actions"]), np.asarray(seen["actions"])
    return [bool(np.abs(raw).max() > 0.01), bool(np.abs(clipped).max() <= 0.01 + 1e-9), list(raw.shape)]
