"""Names, order and defaults of parameters. More parameters than the record has are no difference."""

import importlib
import inspect
from typing import Any

CLASSES = {
    "stable_baselines3": "A2C DDPG DQN PPO SAC TD3 HerReplayBuffer",
    "stable_baselines3.common.buffers": (
        "ReplayBuffer RolloutBuffer DictReplayBuffer DictRolloutBuffer NStepReplayBuffer"
    ),
    "stable_baselines3.common.callbacks": (
        "BaseCallback EventCallback CallbackList CheckpointCallback ConvertCallback EvalCallback "
        "StopTrainingOnRewardThreshold EveryNTimesteps LogEveryNTimesteps StopTrainingOnMaxEpisodes "
        "StopTrainingOnNoModelImprovement ProgressBarCallback"
    ),
    "stable_baselines3.common.monitor": "Monitor ResultsWriter",
    "stable_baselines3.common.noise": "NormalActionNoise OrnsteinUhlenbeckActionNoise VectorizedActionNoise",
    "stable_baselines3.common.policies": "ActorCriticPolicy ActorCriticCnnPolicy MultiInputActorCriticPolicy",
    "stable_baselines3.dqn.policies": "DQNPolicy CnnPolicy MultiInputPolicy",
    "stable_baselines3.sac.policies": "SACPolicy CnnPolicy MultiInputPolicy",
    "stable_baselines3.td3.policies": "TD3Policy CnnPolicy MultiInputPolicy",
    "stable_baselines3.common.torch_layers": "NatureCNN FlattenExtractor CombinedExtractor MlpExtractor",
    "stable_baselines3.common.vec_env": (
        "DummyVecEnv SubprocVecEnv VecFrameStack VecNormalize VecTransposeImage VecMonitor VecCheckNan "
        "VecVideoRecorder VecExtractDictObs"
    ),
    "stable_baselines3.common.atari_wrappers": "AtariWrapper NoopResetEnv MaxAndSkipEnv StickyActionEnv WarpFrame",
    "stable_baselines3.common.utils": "FloatSchedule LinearSchedule ConstantSchedule",
}
FUNCTIONS = {
    "stable_baselines3.common.env_util": "make_vec_env make_atari_env is_wrapped unwrap_wrapper",
    "stable_baselines3.common.env_checker": "check_env",
    "stable_baselines3.common.evaluation": "evaluate_policy",
    "stable_baselines3.common.logger": "configure make_output_format",
    "stable_baselines3.common.monitor": "load_results get_monitor_files",
    "stable_baselines3.common.results_plotter": "plot_results plot_curves ts2xy window_func",
    "stable_baselines3.common.torch_layers": "create_mlp get_actor_critic_arch",
    "stable_baselines3.common.utils": "set_random_seed get_device polyak_update explained_variance configure_logger",
    "stable_baselines3.common.vec_env": "sync_envs_normalization unwrap_vec_normalize is_vecenv_wrapped",
}
METHODS = {
    "stable_baselines3": {
        "PPO": "learn predict save load set_env get_env set_parameters get_parameters set_random_seed set_logger",
        "SAC": "learn save_replay_buffer load_replay_buffer collect_rollouts train",
        "DQN": "learn predict train",
    },
    "stable_baselines3.common.buffers": {
        "ReplayBuffer": "add extend sample reset size to_torch",
        "RolloutBuffer": "add get compute_returns_and_advantage",
    },
    "stable_baselines3.common.logger": {"Logger": "record record_mean dump log debug info warn error set_level"},
    "stable_baselines3.common.vec_env": {
        "DummyVecEnv": "reset step seed set_options get_attr set_attr env_method env_is_wrapped render get_images",
        "VecNormalize": "save load set_venv normalize_obs normalize_reward get_original_obs get_original_reward",
    },
}


def _default(value: Any) -> str:
    if isinstance(value, type):
        return value.__name__
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def _describe(function: Any) -> dict[str, Any]:
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = {p.name: _default(p.default) for p in parameters if p.default is not p.empty}
    return {"positional": " ".join(name for name in positional if name not in ("self", "cls")), "defaults": by_name}


def _members(table: dict[str, str]) -> dict[str, Any]:
    return {
        f"{module.removeprefix('stable_baselines3').lstrip('.')}:{name}": _describe(
            getattr(importlib.import_module(module), name)
        )
        for module, names in table.items()
        for name in names.split()
    }


def constructors() -> dict[str, Any]:
    """Of classes."""
    return _members(CLASSES)


def functions() -> dict[str, Any]:
    """Of functions."""
    return _members(FUNCTIONS)


def methods() -> dict[str, Any]:
    """Of methods that programs call."""
    found = {}
    for module, classes in METHODS.items():
        for name, wanted in classes.items():
            cls = getattr(importlib.import_module(module), name)
            found |= {f"{name}.{method}": _describe(getattr(cls, method)) for method in wanted.split()}
    return found
