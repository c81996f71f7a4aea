"""The command line from end to end, in this process and as a program."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.zoo.cli import main
from polyak.zoo.enjoy import EnjoyOptions, enjoy, play
from polyak.zoo.options import spread_lists
from tests.pairs import one_of_each
from tests.processes import PATIENCE
from tests.warm import python


def run(*arguments: object) -> int:
    """Run a command in this process and return its exit status."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    code = stopped.value.code
    return code if isinstance(code, int) else 0 if code is None else 1


def test_words_after_a_list_flag() -> None:
    words = ["train", "--env-kwargs", "a:1", "b:2", "--seed", "3", "-params", "c:4", "--progress", "x"]
    spread = "train --env-kwargs a:1 --env-kwargs b:2 --seed 3 -params c:4 --progress x"
    assert spread_lists(words, {"--env-kwargs", "-params"}) == spread.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--algo", "pop"], "Unknown algorithm --algo 'pop'. Did you mean 'ppo'"),
        (["train", "--algo", "gail"], "--algo gail needs demonstrations, which only a program can give: polyak.GAIL."),
        (["train", "--env", "CartPol-v1"], "Unknown environment --env 'CartPol-v1'. Did you mean 'CartPole-v1'"),
        (["train", "--env", "no_such_module:X-v0"], "Cannot import the package 'no_such_module'"),
        (["train", "-params", "batchsize:3"], "Unknown setting 'batchsize' for ppo"),
        (["train", "-params", "n_steps"], "--hyperparams 'n_steps' is not of the form key:value"),
        (["train", "--vec-env", "threads"], "--vec-env must be one of dummy, subproc, got 'threads'"),
        (["train", "--n-envs", 0], "--n-envs must be at least 1"),
        (["train", "-n", 0], "--n-timesteps must be at least 1"),
        (["train", "--eval-episodes", 0], "--eval-episodes must be at least 1"),
        (["train", "--save-replay-buffer"], "ppo has no replay buffer"),
        (["train", "-i", "missing.zip"], "--trained-agent 'missing.zip' is not a file"),
        (["train", "--algo", "dqn", "--env", "Pendulum-v1"], "Cannot build dqn for Pendulum-v1"),
        (["train", "-params", "batch_size:100000"], "batch_size"),
        (["train", "-params", "policy:CnnPolicy"], "Cannot build ppo for CartPole-v1"),
        (["train", "--env-kwargs", "gravity:1"], "Cannot make the environment CartPole-v1"),
        (["train", "--address", "auto"], "--address: no part of this training is in another process on Ray"),
        (["train", "--n-runners", 2, "--min-runners", 3], "--min-runners 3 must be at most --n-runners 2"),
        (
            ["train", "--algo", "dqn", "--n-envs", 2, "--n-replay-shards", 2, "--num-cpus-per-runner", 2],
            "--num-cpus-per-runner: no part of this training is in another process on Ray. Give --n-runners",
        ),
        (["train", "--n-runners", 1, "--working-dir", "nowhere", "--n-envs", 1], "--working-dir 'nowhere' is not a"),
        (["train", "--n-runners", 1, "--n-envs", 1, "--runner-strategy", "ALL"], "--runner-strategy must be one of"),
        (["enjoy"], "No run at all of ppo on CartPole-v1"),
        (["enjoy", "--deterministic", "--stochastic"], "exclude each other"),
        (["enjoy", "-n", 0], "--n-timesteps must be at least 1, got 0"),
        (["enjoy", "--record", "x.avi"], "must end in .gif or .mp4"),
        (["plot"], "Which environment? Give --env. There are no runs under logs: train first"),
        (
            ["train", "-tb", "a_file/tb"],
            "--tensorboard-log 'a_file/tb' cannot be written: Not a directory. Give a path",
        ),
        (["train", "-f", "a_file"], "--log-folder 'a_file' cannot be written: Not a directory"),
        (["train", "-f", "a/b/c", "--env-kwargs", "gravity:1"], "Cannot make the environment CartPole-v1"),
        (["enjoy", "--record", "a_file/x.gif"], "--record 'a_file/x.gif' cannot be written: Not a directory"),
        (["enjoy", "--reward-log", "/proc/rewards"], "--reward-log '/proc/rewards' cannot be written: "),
        (["demo", "--output", "a_file"], "--output 'a_file' cannot be written: Not a directory"),
        (["plot", "-e", "CartPole-v1", "-o", "a_folder"], "--output 'a_folder' is a folder. Give the path of a file"),
        (["plot", "-e", "CartPole-v1", "-o", "/proc/x.png"], "--output '/proc/x.png' cannot be written: "),
        (["plot", "-e", "CartPole-v1"], "Nothing to plot"),
        (["list", "--algo", "sac", "--env", "CartPole-v1"], "sac has no settings tuned for --env 'CartPole-v1'"),
        (["list", "--arguments"], "--arguments of which algorithm? Give --algo."),
        (["demo", "--video", "avi"], "--video must be one of gif, mp4"),
    ],
)
def test_mistakes_end_with_status_2_and_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[object],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    (tmp_path / "a_folder").mkdir()
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert error.count("\n") == 1
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"a_file", "a_folder"}, "a run that never started leaves nothing"


def test_an_unknown_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "--alog", "ppo") == 2
    assert "--algo" in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    printed = capsys.readouterr().out
    names, tuned = printed.splitlines()[::2], printed.splitlines()[1::2]
    (start,) = {line.index("tuned: ") for line in tuned}
    assert all(line[start - 2 : start] == "  " and line[start] != " " for line in names)
    assert "ppo" in printed
    assert "Proximal Policy Optimization" in printed
    assert "HalfCheetah-v5" in printed
    assert run("list", "--env", "Pendulum-v1") == 0
    assert "dqn" not in capsys.readouterr().out
    assert run("list", "--algo", "SAC", "--env", "Pendulum-v1") == 0
    assert "n_timesteps: 20000" in capsys.readouterr().out
    assert run("list", "--algo", "SAC", "--arguments") == 0
    assert "tau (float, default 0.005): Rate at which target networks follow" in capsys.readouterr().out


def test_train_enjoy_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / "logs"
    train = ["train", "-n", 600, "--seed", 1, "--n-envs", 2, "-f", logs]
    train += ["-params", "n_steps:16", "batch_size:32", "n_epochs:1", "normalize:True"]
    assert run(*train, "--eval-freq", 200, "--eval-episodes", 2, "--n-eval-envs", 2, "--save-freq", 300) == 0
    folder = logs / "ppo" / "CartPole-v1_1"
    names = {path.name for path in folder.iterdir()}
    assert {"0.monitor.csv", "1.monitor.csv", "best_model.zip", "evaluations.npz", "CartPole-v1.zip"} <= names
    assert any(name.startswith("rl_model_") and name.endswith("_steps.zip") for name in names)
    inside = {path.name for path in (folder / "CartPole-v1").iterdir()}
    assert {"config.yml", "args.yml", "command.txt", "vecnormalize.pkl"} <= inside
    assert "n_steps: 16" in (folder / "CartPole-v1" / "config.yml").read_text()
    with np.load(folder / "evaluations.npz") as evaluations:
        assert evaluations["results"].shape == (3, 2)
        assert evaluations["timesteps"].tolist() == [200, 400, 600]

    capsys.readouterr()
    gif = tmp_path / "episode.gif"
    enjoy = ["enjoy", "--algo", "ppo", "--env", "CartPole-v1", "-f", logs, "-n", 100]
    assert run(*enjoy, "-n", 60, "--record", gif, "--reward-log", tmp_path / "rewards") == 0
    printed = capsys.readouterr().out
    assert "Mean reward:" in printed
    assert "Episode Reward: " in printed
    assert gif.stat().st_size > 1000
    assert (tmp_path / "rewards" / "0.monitor.csv").is_file()
    assert run(*enjoy, "--load-best", "--no-render", "--stochastic", "--n-envs", 2) == 0
    assert run(*enjoy, "--load-last-checkpoint", "--no-render") == 0
    assert run(*enjoy, "--load-checkpoint", 5, "--no-render") == 2

    for source, extra in (("train", ["-w", 5, "-x", "episodes"]), ("eval", [])):
        image = tmp_path / f"{source}.png"
        assert run("plot", "-a", "ppo", "-e", "CartPole-v1", "-f", logs, "-s", source, "-o", image, *extra) == 0
        assert image.stat().st_size > 1000
    assert "|CartPole-v1|" in capsys.readouterr().out

    assert run(*train, "--trained-agent", folder / "CartPole-v1.zip", "--eval-freq", -1, "--verbose", 0) == 0
    assert (logs / "ppo" / "CartPole-v1_2" / "CartPole-v1.zip").is_file()


def test_python_m_polyak() -> None:
    result = python(["-m", "polyak", "--version"], check=True)
    assert result.stdout.startswith("polyak ")


def test_the_command_line_starts_without_the_libraries_that_only_some_commands_need() -> None:
    heavy = ("torch", "pandas", "matplotlib", "optuna", "plotly", "huggingface_hub", "jinja2", "scipy")
    program = f"import sys, polyak.zoo.cli; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_missing_typer_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    assert run("list") == 2
    assert "pip install 'polyak[zoo]'" in capsys.readouterr().err


def test_enjoy_repeats_itself_and_leaves_the_statistics_alone(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(model: Any, envs: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(model.get_vec_normalize_env())
        before = seen[-1].obs_rms.count
        episodes = play(model, envs, *args, **kwargs)
        assert seen[-1].obs_rms.count == before
        return episodes

    monkeypatch.setattr("polyak.zoo.enjoy.play", spy)
    options = EnjoyOptions(folder=str(trained), n_timesteps=200, render=False, stochastic=True, seed=5, verbose=0)
    first, second = enjoy(options), enjoy(options)
    assert first.returns == second.returns
    assert sum(first.returns) == sum(first.lengths), "CartPole's own rewards, not normalised ones"
    other = enjoy(replace(options, seed=6))
    assert other.returns != first.returns
    assert len(seen) == 3


DICT_ENV = """
import gymnasium as gym, numpy as np
from gymnasium import spaces

class Parts(gym.Env):
    observation_space = spaces.Dict({"place": spaces.Box(-9, 9, (2,), np.float32), "kind": spaces.Discrete(3)})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.look(), {}

    def look(self):
        return {"place": self.np_random.uniform(3, 5, 2).astype(np.float32), "kind": 1}

    def step(self, action):
        self.time += 1
        return self.look(), 1.0, False, self.time == 10, {}
"""


@pytest.mark.parametrize("save_format", one_of_each(["polyak", "sb3"], "sb3"))
def test_a_continued_training_is_evaluated_under_the_normalisation_it_learned_with(
    save_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from polyak.callbacks import evaluating

    (tmp_path / "parts.py").write_text(DICT_ENV)
    params = ["-params", "n_steps:32", "batch_size:32", "n_epochs:1", "policy:'MultiInputPolicy'"]
    train = ["train", "--env", f"{tmp_path / 'parts.py'}:Parts", "-f", tmp_path, "-n", 64, "--seed", 3]
    train += ["--n-envs", 1, "--eval-freq", 32, "--verbose", 0, "--save-format", save_format, *params]
    assert run(*train, "normalize:{'norm_obs_keys': ['place'], 'clip_obs': 1.5, 'epsilon': 0.01}") == 0
    seen, play = [], evaluating.evaluate_policy

    def spy(model: Any, env: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((env.state_dict(), model.get_vec_normalize_env().state_dict()))
        return play(model, env, *args, **kwargs)

    monkeypatch.setattr(evaluating, "evaluate_policy", spy)
    model = tmp_path / "ppo" / "Parts_1" / "Parts.zip"
    assert run(*train, "normalize:{'clip_obs': 9.0}", "-i", model) == 0
    assert "normalisation that it learned with: clip_obs=1.5, not 9.0" in capsys.readouterr().err
    assert len(seen) == 2
    for evaluated, learned in seen:
        assert {name: evaluated[name] for name in ("training", "norm_reward")} == {
            "training": False,
            "norm_reward": False,
        }
        for name in ("norm_obs", "norm_obs_keys", "clip_obs", "epsilon", "gamma", "obs_rms/place/mean"):
            np.testing.assert_array_equal(evaluated[name], learned[name])
        assert learned["clip_obs"] == 1.5


SMALL = ("-params", "n_steps:16", "batch_size:32", "n_epochs:1", "n_envs:2")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_training_is_saved_and_says_so(
    number: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from polyak import PPO
    from polyak.loops.on_policy import OnPolicyLoop

    iterate = OnPolicyLoop.iterate

    def iterate_once(self: Any) -> bool:
        if self.collector.clock.steps:
            signal.raise_signal(number)
        return iterate(self)

    monkeypatch.setattr(OnPolicyLoop, "iterate", iterate_once)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the caller of the tests may ignore Ctrl-C
    others = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray, once started in this process, has its own way with it
    try:
        assert run("train", "-f", tmp_path, "-n", 1000, "--eval-freq", -1, *SMALL) == status
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, others)
    model = tmp_path / "ppo" / "CartPole-v1_1" / "CartPole-v1.zip"
    # The step after 32, where a full checkpoint can be written.
    assert f"interrupted after 34 steps; the model is in {model}" in capsys.readouterr().err
    assert PPO.load(model).num_timesteps == 34


@pytest.mark.slow
def test_a_training_outlasts_its_reader(tmp_path: Path) -> None:
    """``polyak train | head -1``: the reader closes the pipe while the training continues."""
    command = [sys.executable, "-u", "-m", "polyak", "train", "-f", str(tmp_path), "-n", "640", "--eval-freq", "-1"]
    with subprocess.Popen([*command, *SMALL], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert "PPO on CartPole-v1" in program.stdout.readline()
        program.stdout.close()
        said = program.stderr.read()
        assert program.wait(timeout=PATIENCE) == 0, said
    assert "the output is not read any more; training continues without it." in said
    assert said.count("is not read any more") == 1
    assert "Traceback" not in said
    assert (tmp_path / "ppo" / "CartPole-v1_1" / "CartPole-v1.zip").is_file()


def test_nothing_is_left_by_looking_whether_a_path_can_be_written(tmp_path: Path) -> None:
    from polyak.zoo.output import writable_file, writable_folder

    assert writable_file("--x", str(tmp_path / "a" / "b.png")) == tmp_path / "a" / "b.png"
    assert writable_folder("--x", str(tmp_path / "c" / "d")) == tmp_path / "c" / "d"
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_that_is_removed_spares_what_others_made(tmp_path: Path) -> None:
    from polyak.zoo.run_folder import RunFolder

    mine = RunFolder.create(tmp_path / "new" / "logs", "ppo", "X-v0")
    other = RunFolder.create(tmp_path / "new" / "logs", "sac", "X-v0")
    mine.remove()
    assert other.path.is_dir()
    assert not (tmp_path / "new" / "logs" / "ppo").exists()
    other.remove()
    assert not (tmp_path / "new" / "logs" / "sac").exists()
