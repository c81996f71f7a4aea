import copy
import pickle
import sys
import warnings
from collections import deque
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from polyak import PPO, make_vec_env
from polyak.callbacks.attached import as_callback
from polyak.callbacks.callback import BaseCallback, CallbackList, ConvertCallback, EventCallback, LoopLocals
from polyak.callbacks.evaluating import EvalCallback, evaluation_seed
from polyak.callbacks.periodic import EveryNTimesteps, LogEveryNTimesteps
from polyak.callbacks.progress_bar import ProgressBarCallback
from polyak.callbacks.saving import CheckpointCallback
from polyak.callbacks.stopping import (
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.vec.vec_env import VecEnvWrapper
from polyak.envs.wrappers.monitor import Monitor
from polyak.envs.wrappers.normalize import VecNormalize
from polyak.evaluation.in_environments import evaluate
from polyak.logging.logger import KVWriter, Logger


class Recorder(KVWriter):
    """A sink that keeps what is written."""

    def __init__(self):
        self.dumps = []

    def write(self, key_values, key_excluded, step=0):
        self.dumps.append((step, dict(key_values), dict(key_excluded)))

    def close(self):
        pass


class Model:
    """What callbacks know of a model, around a loop that calls them as ``learn`` does. It plays at random."""

    def __init__(self, env=None, seed=None, rollout=5):
        self.env = cartpole() if env is None else env
        self.seed, self.rollout, self.n_envs, self.verbose = seed, rollout, self.env.num_envs, 0
        self.num_timesteps = self._total_timesteps = 0
        self.sink = Recorder()
        self.logger = Logger(None, [self.sink])
        self.replay_buffer = object()
        self.ep_info_buffer, self.ep_success_buffer = deque(), deque()
        self.saved, self.n_logs = [], 0

    def get_env(self):
        return self.env

    def get_vec_normalize_env(self):
        return self.env if isinstance(self.env, VecNormalize) else None

    def save(self, path):
        self.saved.append((self.num_timesteps, path))

    save_replay_buffer = save

    def dump_logs(self):
        self.n_logs += 1

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.array([self.env.action_space.sample() for _ in observation]), state

    def learn(self, total_timesteps, callback=None, reset_num_timesteps=True):
        self.num_timesteps = 0 if reset_num_timesteps else self.num_timesteps
        self._total_timesteps = self.num_timesteps + total_timesteps
        callback = as_callback(callback, self)
        callback.on_training_start({"self": self, "total_timesteps": total_timesteps}, {"a_global": 1})
        self.env.reset()
        while self.num_timesteps < self._total_timesteps and self._collect(callback):
            pass
        callback.on_training_end()
        return self

    def _collect(self, callback):
        callback.on_rollout_start()
        for _ in range(self.rollout):
            _, rewards, dones, infos = self.env.step(np.zeros(self.n_envs, dtype=int))
            self.num_timesteps += self.n_envs
            if callback.needs_locals:
                callback.update_locals({"rewards": rewards, "dones": dones, "infos": infos})
            if not callback.on_step():
                return False
        callback.on_rollout_end()
        return True


def cartpole(n_envs=1, **kwargs):
    return DummyVecEnv([lambda: Monitor(gym.make("CartPole-v1", **kwargs)) for _ in range(n_envs)])


class Hooks(BaseCallback):
    """Writes down every hook."""

    def __init__(self, stop_at=None):
        super().__init__(verbose=1)
        self.calls, self.stop_at = [], stop_at

    def _note(self, name):
        self.calls.append((name, self.n_calls, self.num_timesteps))

    def _init_callback(self):
        assert self.model.num_timesteps >= 0
        self._note("init")

    def _on_training_start(self):
        assert self.training_env is self.model.env
        assert self.logger is self.model.logger
        self._note("training_start")

    def _on_rollout_start(self):
        self._note("rollout_start")

    def _on_step(self):
        self._note("step")
        return self.num_timesteps != self.stop_at

    def _on_rollout_end(self):
        self._note("rollout_end")

    def _on_training_end(self):
        self._note("training_end")


class Scores(EvalCallback):
    """An EvalCallback whose evaluations are given."""

    def __init__(self, *args, scores, **kwargs):
        super().__init__(*args, **kwargs)
        self.scores = iter(scores)

    def _evaluate(self):
        self._is_success_buffer = []
        return [float(next(self.scores))] * self.n_eval_episodes, [3] * self.n_eval_episodes


# -- the hooks ---------------------------------------------------------------------------------------------------------


def test_none_stops_training_but_says_so_once():
    with pytest.warns(UserWarning, match="returned None, which stops training as False does. Return True") as record:
        assert Model().learn(100, lambda names, globals_: None).num_timesteps == 1
    assert len(record) == 1


def test_a_model_without_environment():
    hooks = Hooks()
    hooks.model = Model()
    hooks.model.env = None
    with pytest.raises(ValueError, match="the model has no environment"):
        hooks.training_env  # noqa: B018


# -- lists, functions, children ----------------------------------------------------------------------------------------


def test_a_list_calls_everyone_even_after_one_has_stopped():
    first, second = Hooks(stop_at=3), Hooks()
    steps = []
    model = Model().learn(100, [first, lambda names, _: steps.append(1) or True, second])
    assert model.num_timesteps == 3
    assert first.calls[1:] == second.calls[1:]  # locals, hooks and counters alike
    assert len(steps) == 3
    assert second.locals["dones"].shape == (1,)


def test_as_callback():
    model = Model()
    hooks = Hooks()
    assert as_callback(hooks, model) is hooks
    assert hooks.model is model
    empty = as_callback(None, model)
    assert empty.on_step()
    assert isinstance(as_callback(print, model), ConvertCallback)
    assert [type(each) for each in as_callback((hooks, print), model).callbacks] == [Hooks, ConvertCallback]
    with_bar = as_callback(hooks, model, progress_bar=True)
    assert [type(each) for each in with_bar.callbacks] == [Hooks, ProgressBarCallback]
    for bad in ("text", 3, Hooks, [3]):
        with pytest.raises(TypeError, match="callback must be a BaseCallback object, a function"):
            as_callback(bad, model)


@pytest.mark.parametrize("hold", [EventCallback, lambda child: CallbackList([child])])
def test_locals_reach_children_that_have_their_own(hold):
    child = Hooks()
    holder = hold(child)
    holder.update_locals({"dones": 1})
    assert holder.locals == child.locals == {"dones": 1}


# -- need of the loop's variables --------------------------------------------------------------------------------------


def test_needs_locals():
    class Plain(BaseCallback):
        def _on_step(self):
            return True

    class Frugal(Plain):
        needs_locals = False

    class OwnEval(EvalCallback):
        """May read self.locals, although EvalCallback does not."""

    class OwnList(CallbackList):
        pass

    env = cartpole()
    ours = [
        CheckpointCallback(1, "."), EvalCallback(env), StopTrainingOnRewardThreshold(1), LogEveryNTimesteps(1),
        StopTrainingOnNoModelImprovement(1), ProgressBarCallback(), EveryNTimesteps(1, CheckpointCallback(1, ".")),
        CallbackList([]), ConvertCallback(None), Frugal(), EventCallback(),
    ]  # fmt: skip
    assert [type(each).__name__ for each in ours if each.needs_locals] == []
    assert not CallbackList(ours).needs_locals
    theirs = [
        Plain(), OwnEval(env), OwnList([]), ConvertCallback(print), StopTrainingOnMaxEpisodes(1),
        EveryNTimesteps(1, print), EvalCallback(env, callback_after_eval=Plain()),
        EvalCallback(env, callback_on_new_best=Plain()), CallbackList([EventCallback(Plain())]),
    ]  # fmt: skip
    assert [type(each).__name__ for each in theirs if not each.needs_locals] == []
    assert all(CallbackList([*ours, each]).needs_locals for each in theirs)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_checkpoints_without_extras_and_by_timesteps(tmp_path):
    model = Model(cartpole(4))
    model.replay_buffer = None
    model.learn(40, CheckpointCallback(10, tmp_path, save_replay_buffer=True, save_vecnormalize=True, unit="timesteps"))
    assert [steps for steps, _ in model.saved] == [12, 20, 32, 40]  # the first step at or past each multiple of ten
    assert model.saved[0][1] == str(tmp_path / "rl_model_12_steps.zip")


def test_checkpoint_arguments(tmp_path):
    with pytest.raises(ValueError, match="save_freq must be at least 1, got 0"):
        CheckpointCallback(0, tmp_path)
    with pytest.raises(ValueError, match="unit must be 'calls' or 'timesteps', got 'episodes'"):
        CheckpointCallback(1, tmp_path, unit="episodes")
    with pytest.raises(ValueError, match="keep must be at least 1, or None to keep all, got 0"):
        CheckpointCallback(1, tmp_path, keep=0)
    with pytest.raises(ValueError, match="full=True and file_format='sb3'"):
        CheckpointCallback(1, tmp_path, full=True, file_format="sb3")


class Counting(BaseCallback):
    """Counts in several ways."""

    def __init__(self, weight=1.0):
        super().__init__()
        self.weight, self.seen, self.name = weight, [], "mine"

    def _on_step(self):
        self.weight *= 0.5
        self.seen = [*self.seen, self.num_timesteps]
        return True


def test_full_checkpoints_let_callbacks_go_on(tmp_path):
    def train(model, steps, **how):
        env = make_vec_env("CartPole-v1", seed=1)
        evaluation = EvalCallback(env, eval_freq=16, n_eval_episodes=1, log_path=tmp_path / "log", verbose=0)
        callbacks = [Counting(), evaluation, CheckpointCallback(10, tmp_path, full=True, keep=2)]
        model.learn(steps, callbacks, **how)
        return callbacks

    (tmp_path / "rl_model_9000_steps.zip").touch()  # of another training
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")
    whole = train(model, 48)
    names = sorted(path.name for path in tmp_path.glob("*.zip"))
    assert names == ["rl_model_30_steps.zip", "rl_model_40_steps.zip", "rl_model_9000_steps.zip"]
    again = PPO.load(tmp_path / "rl_model_30_steps.zip", env="CartPole-v1", resume=True, device="cpu")
    resumed = train(again, 18, reset_num_timesteps=False)
    assert vars(resumed[0])["seen"] == vars(whole[0])["seen"] == list(range(1, 49))
    assert (resumed[0].weight, resumed[0].n_calls) == (0.5**48, 48)
    assert resumed[1].evaluations_results == whole[1].evaluations_results
    assert resumed[1].best_mean_reward == whole[1].best_mean_reward
    np.testing.assert_array_equal(again.policy.parameters_to_vector(), model.policy.parameters_to_vector())


# -- evaluation --------------------------------------------------------------------------------------------------------


class SavingModel(Model):
    """One that writes what it has learned: its number of steps."""

    def save(self, path):
        super().save(path)
        Path(path).with_suffix(".zip").write_text(str(self.num_timesteps))


def evaluated(folder, scores, learned=0, log=True, **options):
    """A training of 30 steps with scores after every ten, of a model that has made ``learned`` before."""
    model = SavingModel()
    model.num_timesteps = learned
    log_path = folder if log else None
    options = {"eval_freq": 10, "n_eval_episodes": 2, "verbose": 0, **options}
    callback = Scores(cartpole(), scores=scores, log_path=log_path, best_model_save_path=folder, **options)
    model.learn(30, callback, reset_num_timesteps=not learned)
    return callback


def logged(folder, name="evaluations.npz"):
    with np.load(folder / name) as data:
        return dict(zip(data["timesteps"].tolist(), data["results"].mean(1).tolist(), strict=True)), sorted(data)


def test_resumed_evaluations_are_continued_and_the_best_model_is_kept(tmp_path, capsys):
    evaluated(tmp_path, [5, 9, 7])
    callback = evaluated(tmp_path, [6, 8, 4], learned=30, verbose=1)
    assert "best mean reward so far 9.00" in capsys.readouterr().out
    columns = ["ep_lengths", "results", "timesteps"]
    assert logged(tmp_path) == ({10: 5, 20: 9, 30: 7, 40: 6, 50: 8, 60: 4}, columns)
    assert (callback.best_mean_reward, (tmp_path / "best_model.zip").read_text()) == (9, "20")
    evaluated(tmp_path, [3, 11, 4], learned=60)
    assert (tmp_path / "best_model.zip").read_text() == "80"
    evaluated(tmp_path, [1, 2, 1])  # a training that begins again begins new files
    assert logged(tmp_path) == ({10: 1, 20: 2, 30: 1}, columns)
    assert (tmp_path / "best_model.zip").read_text() == "20"
    assert len(list(tmp_path.iterdir())) == 2


def test_resumed_at_an_earlier_step_a_better_model_of_later_ones_is_kept_for_good(tmp_path):
    evaluated(tmp_path, [5, 6, 9])
    evaluated(tmp_path, [7, 8, 8], learned=10)
    assert logged(tmp_path) == ({10: 5, 20: 7, 30: 8, 40: 8}, ["best", "ep_lengths", "results", "timesteps"])
    evaluated(tmp_path, [8, 7, 8], learned=40)
    assert (tmp_path / "best_model.zip").read_text() == "30"
    evaluated(tmp_path, [10, 7, 8], learned=70)
    assert (tmp_path / "best_model.zip").read_text() == "80"
    assert logged(tmp_path)[1] == ["ep_lengths", "results", "timesteps"]


def test_what_cannot_be_continued_is_put_aside_with_a_word(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluated(tmp_path, [5, 9, 7], log=False)
        evaluated(tmp_path / "elsewhere", [1, 2, 1], learned=30)  # there is nothing to continue
    with pytest.warns(UserWarning, match=r"best_model.zip' is not continued.*as 'best_model_until_30_steps.zip'"):
        evaluated(tmp_path, [1, 2, 1], learned=30, log=False)
    texts = {path.name: path.read_text() for path in tmp_path.glob("*.zip")}
    assert texts == {"best_model.zip": "50", "best_model_until_30_steps.zip": "20"}
    with pytest.warns(UserWarning, match=r"npz' is not continued: its evaluations have 2 episodes, those .* 3"):
        evaluated(tmp_path / "elsewhere", [0, 1, 1], learned=60, n_eval_episodes=3)
    assert logged(tmp_path / "elsewhere")[0] == {70: 0, 80: 1, 90: 1}
    assert logged(tmp_path / "elsewhere", "evaluations_until_60_steps.npz")[0] == {40: 1, 50: 2, 60: 1}
    assert (tmp_path / "elsewhere" / "best_model.zip").read_text() == "50"


def test_successes_are_continued(tmp_path):
    class Succeeds(Scores):
        def _evaluate(self):
            found = super()._evaluate()
            self._is_success_buffer = [True, found[0][0] > 5]
            return found

    for learned in (0, 20):
        model = SavingModel()
        model.num_timesteps = learned
        callback = Succeeds(cartpole(), scores=[5, 6], eval_freq=10, n_eval_episodes=2, log_path=tmp_path, verbose=0)
        model.learn(20, callback, reset_num_timesteps=not learned)
    with np.load(tmp_path / "evaluations.npz") as data:
        assert data["successes"].tolist() == [[True, False], [True, True]] * 2


@pytest.mark.parametrize("damage", ["text", "cut", "pickle", "names", "shapes", "huge"])
def test_a_damaged_file_of_evaluations_ends_the_training_before_it_begins(damage, tmp_path):
    path = tmp_path / "evaluations.npz"
    fine = {"timesteps": [10], "results": [[1.0]], "ep_lengths": [[1]]}
    np.savez(path, **fine)
    if damage == "text":
        path.write_text("nothing")
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "pickle":
        np.savez(path, **{**fine, "results": np.array([{}, [1]], dtype=object)})
    elif damage == "names":
        np.savez(path, timesteps=[10])
    elif damage == "shapes":
        np.savez(path, **{**fine, "results": [[1.0], [2.0]]})
    else:
        np.savez_compressed(path, **{**fine, "results": np.zeros((1, 10_000_000))})
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"npz' cannot be continued .*Move it away, or give another log_path"):
        evaluated(tmp_path, [5, 6, 7], learned=10)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("unit", "freq", "when"),
    [("calls", 3, [12, 24, 36]), ("timesteps", 10, [12, 20, 32, 40]), ("calls", 0, []), ("calls", -1, [])],
)
def test_evaluation_frequency(unit, freq, when):
    model = Model(cartpole(4))
    model.learn(40, Scores(cartpole(), scores=range(99), eval_freq=freq, unit=unit, verbose=0))
    assert [step for step, _, _ in model.sink.dumps] == when


def test_counting_timesteps_starts_where_training_starts():
    model = Model()
    callback = Scores(cartpole(), scores=range(99), eval_freq=10, unit="timesteps", verbose=0)
    model.learn(25, callback).learn(10, callback, reset_num_timesteps=False).learn(10, callback)
    assert [step for step, _, _ in model.sink.dumps] == [10, 20, 30, 10]
    model = Model().learn(25)
    callback = Scores(cartpole(), scores=range(99), eval_freq=10, unit="timesteps", verbose=0)
    model.learn(10, callback, reset_num_timesteps=False)
    assert [step for step, _, _ in model.sink.dumps] == [30]  # not at once, for the two tens that it missed


def play(seed, eval_seed=None, deterministic=True, noise=None):
    """Evaluations of a player that draws its actions from numpy's global generator."""
    model = Model(seed=seed)
    model.predict = lambda obs, **_: (np.random.randint(2, size=len(obs)), None)
    np.random.seed(noise)
    callback = EvalCallback(cartpole(), eval_freq=10, seed=eval_seed, deterministic=deterministic, verbose=0)
    callback._write_evaluations = lambda returns, lengths: callback.evaluations_results.append(returns)
    model.learn(30, callback)
    return model, callback.evaluations_results


def test_equal_seeds_give_equal_evaluations():
    assert play(3, noise=1)[1] == play(3, noise=2)[1]
    assert play(3)[1] != play(4)[1]
    assert play(None, eval_seed=3)[1] == play(3)[1]
    assert play(4, eval_seed=3)[1] == play(3)[1]
    assert play(None, noise=1)[1] != play(None, noise=2)[1]
    results = play(3)[1]
    assert results[0] != results[1] != results[2]


def test_one_evaluation_can_be_repeated_from_its_seed():
    model, results = play(3)
    again = evaluate(model, cartpole(), 5, seed=evaluation_seed(3, 20))
    assert again.returns.tolist() == results[1]
    assert 0 <= evaluation_seed(2**32 - 1, 10**9) < 2**30


def test_seeded_evaluation_draws_nothing_from_the_training():
    np.random.seed(0)
    expected = np.random.rand()
    play(3, noise=0)
    assert np.random.rand() == expected


def test_evaluation_warns_of_traps():
    with pytest.warns(UserWarning, match="eval_env is wrapped in another way than the training environment"):
        as_callback(EvalCallback(VecEnvWrapperOfNothing(cartpole())), Model())
    model = Model()
    with pytest.warns(UserWarning, match="eval_env is the training environment itself"):
        as_callback(EvalCallback(model.env), model)
    with pytest.warns(UserWarning, match="to evaluate in has no ``Monitor``"):
        model.learn(5, EvalCallback(gym.make("CartPole-v1"), eval_freq=5, n_eval_episodes=1, verbose=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(5, EvalCallback(gym.make("CartPole-v1"), eval_freq=5, n_eval_episodes=1, verbose=0, warn=False))
    with pytest.raises(ValueError, match="n_eval_episodes must be at least 1, got 0"):
        EvalCallback(cartpole(), n_eval_episodes=0)


class VecEnvWrapperOfNothing(VecEnvWrapper):
    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


def test_normalisation_is_copied_before_each_evaluation():
    train, test = VecNormalize(cartpole()), VecNormalize(cartpole(), training=False, norm_reward=False)
    model = Model(train)
    model.learn(20, EvalCallback(test, eval_freq=20, n_eval_episodes=1, verbose=0))
    np.testing.assert_array_equal(test.obs_rms.mean, train.obs_rms.mean)
    assert test.obs_rms.count == train.obs_rms.count > 20
    with pytest.raises(AssertionError, match="Error while synchronizing normalization"):
        Model(train).learn(20, EvalCallback(cartpole(), eval_freq=20, verbose=0, warn=False))


def test_an_evaluation_environment_by_name():
    train = VecNormalize(cartpole(2), clip_obs=3.0)
    callback = EvalCallback("CartPole-v1", eval_freq=20, n_eval_episodes=1, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Model(train, seed=1).learn(40, callback)
    assert len(model.sink.dumps) == 1
    assert isinstance(callback.eval_env, VecNormalize)
    assert (callback.eval_env.training, callback.eval_env.norm_reward, callback.eval_env.clip_obs) == (
        False,
        False,
        3.0,
    )
    np.testing.assert_array_equal(callback.eval_env.obs_rms.mean, train.obs_rms.mean)
    model.learn(40, callback)  # wrapped once, not again
    assert isinstance(callback.eval_env.venv, DummyVecEnv)
    with pytest.raises(ValueError, match="Did you mean 'CartPole-v1'"):
        EvalCallback("CartPol-v1")
    with pytest.raises(ValueError, match="env='MountainCar-v0' does not suit the model. Observation spaces"):
        Model(cartpole()).learn(20, EvalCallback("MountainCar-v0"))
    with pytest.raises(ValueError, match=r"env='MountainCar-v0' does not suit the model.*shape \(4,\)"):
        model.learn(20, EvalCallback("MountainCar-v0"))


def test_an_endless_evaluation_is_cut():
    model = Model()
    env = Monitor(gym.make("CartPole-v1"))
    callback = EvalCallback(env, eval_freq=5, n_eval_episodes=2, verbose=0, max_steps_per_episode=3)
    with pytest.warns(UserWarning, match="reached max_steps_per_episode=3"):
        model.learn(5, callback)
    assert callback.last_mean_reward == 3


# -- stopping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("callback", [StopTrainingOnRewardThreshold(1), StopTrainingOnNoModelImprovement(1)])
def test_children_of_evaluation_need_a_parent(callback):
    with pytest.raises(AssertionError, match="must be used with an EvalCallback"):
        Model().learn(10, callback)


def test_children_may_be_lists_of_children():
    callback = Scores(
        cartpole(), scores=[5, 6], eval_freq=10, verbose=0,
        callback_on_new_best=CallbackList([Hooks(), StopTrainingOnRewardThreshold(6)]),
    )  # fmt: skip
    assert Model().learn(200, callback).num_timesteps == 20


@pytest.mark.parametrize("n_envs", [1, 2])
def test_stop_on_max_episodes(n_envs, capsys):
    model = Model(cartpole(n_envs, max_episode_steps=4))
    callback = StopTrainingOnMaxEpisodes(3, verbose=1)
    model.learn(1000, callback)
    assert model.num_timesteps == 12 * n_envs  # CartPole stands for four steps whatever is done
    assert callback.n_episodes == 3 * n_envs
    average = " (3.00 per environment)" if n_envs > 1 else ""
    assert capsys.readouterr().out == (
        f"Training stops after {12 * n_envs} steps: Model has played {3 * n_envs} episodes{average}, "
        "as max_episodes=3 asks\n"
    )
    with pytest.raises(ValueError, match="max_episodes must be at least 1, got 0"):
        StopTrainingOnMaxEpisodes(0)


# -- now and then ------------------------------------------------------------------------------------------------------


def test_every_n_timesteps_counts_all_environments():
    child = Hooks()
    callback = EveryNTimesteps(7, child)
    Model(cartpole(2)).learn(40, callback)
    assert [steps for name, _, steps in child.calls if name == "step"] == [8, 16, 24, 32, 40]
    assert child.parent is callback
    assert not EveryNTimesteps(1, lambda names, _: False).callback.parent.n_calls
    assert Model().learn(50, EveryNTimesteps(7, lambda names, _: False)).num_timesteps == 7
    with pytest.raises(ValueError, match="n_steps must be at least 1, got 0"):
        EveryNTimesteps(0, child)


def test_every_n_timesteps_in_a_second_learn():
    child = Hooks()
    callback = EveryNTimesteps(10, child)
    Model().learn(20, callback).learn(20, callback)
    assert [steps for name, _, steps in child.calls if name == "step"] == [10, 20, 10, 20]


def test_log_every_n_timesteps():
    model = Model().learn(25, LogEveryNTimesteps(10))
    assert model.n_logs == 2


def test_progress_bar_shows_all_steps(capsys):
    pytest.importorskip("tqdm")
    pytest.importorskip("rich")
    callback = ProgressBarCallback()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Model(cartpole(2)).learn(20, callback)
    assert (callback.pbar.n, callback.pbar.total) == (20, 20)
    model.learn(10, callback, reset_num_timesteps=False)
    assert (callback.pbar.n, callback.pbar.total) == (10, 10)
    assert "20/20" in capsys.readouterr().out.replace(" ", "")


def test_progress_bar_ends_at_what_was_asked_for_though_rollouts_are_finished():
    pytest.importorskip("tqdm")
    pytest.importorskip("rich")
    callback = ProgressBarCallback()
    model = Model(cartpole(2)).learn(14, callback)
    assert model.num_timesteps == 20
    assert (callback.pbar.n, callback.pbar.total) == (14, 14)


@pytest.mark.parametrize("missing", ["tqdm", "rich.progress"])
def test_progress_bar_without_its_packages_names_the_extra(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "tqdm.rich", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'polyak\[extra\]'"):
        ProgressBarCallback()


def test_names_that_are_costly_are_computed_when_they_are_read():
    computed = []

    def step(number):
        def compute():
            computed.append(number)
            return {"values": number, "log_probs": -number, "obs_tensor": None}

        return LoopLocals({"infos": [], "rewards": number}, compute)

    seen = LoopLocals({"self": "model"})
    for number, read in enumerate(
        (
            lambda names: (names["infos"], names.get("rewards"), names.get("nothing"), "values" in names, "x" in names),
            lambda names: names["values"] == 1 and names.get("log_probs") == -1,
            list,
            lambda names: {**names}["values"] == 3 and len(names) == 6,
            lambda names: copy.deepcopy(names)["values"] == 4 and dict(names) == names.copy() == names,
            lambda names: pickle.loads(pickle.dumps(names))["values"] == 5,
            lambda names: "values" in repr(names),
        )
    ):
        seen.renew(step(number))
        assert computed == list(range(1, number)), "an entry that no one reads is not computed"
        assert seen["rewards"] == number
        assert read(seen)
        assert computed == list(range(1, number + 1))
    with pytest.raises(KeyError, match="nothing"):
        seen["nothing"]
    assert seen["values"] == 6
    seen.renew({"values": 7})  # of a loop that knows it
    assert seen["values"] == 7
    assert computed[-1] == 6
