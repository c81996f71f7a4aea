"""Continuing a training, files for Stable-Baselines3, and what `enjoy` and the films make of a run folder."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak import PPO, SAC, QLearning
from polyak.envs import VecNormalize, make_vec_env
from polyak.zoo.enjoy import EnjoyOptions, enjoy
from polyak.zoo.errors import ZooError
from polyak.zoo.model_files import check_writable
from polyak.zoo.record import RecordTrainingOptions, record_training
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.train import TrainOptions, train
from tests.pairs import one_of_each
from tests.zoo.test_cli import run

SMALL = ["n_steps:16", "batch_size:32", "n_epochs:1", "n_envs:2", "normalize:True"]


def options(folder: Path, **more: Any) -> TrainOptions:
    """A training of about a second."""
    values: dict[str, Any] = {"n_timesteps": 128, "eval_freq": -1, "hyperparams": SMALL, "verbose": 0, "seed": 0}
    return TrainOptions(log_folder=str(folder), **{**values, **more})


def playing(folder: Path, **more: Any) -> EnjoyOptions:
    """A short look without a window."""
    return EnjoyOptions(folder=str(folder), **{"n_timesteps": 200, "render": False, "verbose": 0, **more})


@pytest.fixture(scope="module")
def sb3_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a normalised training with evaluations and checkpoints, written for Stable-Baselines3."""
    logs = tmp_path_factory.mktemp("sb3")
    frequencies = {"eval_freq": 64, "eval_episodes": 2, "save_freq": 64}
    train(options(logs, save_format="sb3", env="Pendulum-v1", **frequencies))
    return logs


def test_files_for_stable_baselines3(sb3_run: Path) -> None:
    folder = RunFolder.find(sb3_run, "ppo", "Pendulum-v1")
    models = [folder.final_model, folder.best_model, *folder.checkpoints().values()]
    assert len(models) == 4
    for model in models:
        with zipfile.ZipFile(model) as archive:
            assert {"data", "policy.pth", "policy.optimizer.pth"} <= set(archive.namelist())
    checkpoint = folder.checkpoints()[64]
    assert folder.normalizer_of(checkpoint) == folder.path / "rl_model_vecnormalize_64_steps.pkl"
    assert folder.normalizer_of(folder.best_model) == folder.normalizer
    counts = {}
    for path in (folder.normalizer, folder.normalizer_of(checkpoint)):
        assert path is not None
        assert path.read_bytes()[:1] == b"\x80", "a pickle"
        counts[path] = VecNormalize.load(path, make_vec_env("Pendulum-v1")).obs_rms.count
    assert counts[folder.normalizer] - counts[folder.path / "rl_model_vecnormalize_64_steps.pkl"] == 64


def test_they_are_played_with_their_statistics(sb3_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    from polyak.zoo import enjoy as module

    play = module.play

    def spy(model: Any, envs: Any, *args: Any, **kwargs: Any) -> Any:
        normalizer = model.get_vec_normalize_env()
        seen.append((normalizer.obs_rms.count, normalizer.training, normalizer.norm_reward))
        return play(model, envs, *args, **kwargs)

    monkeypatch.setattr(module, "play", spy)
    last = enjoy(playing(sb3_run, env="Pendulum-v1", n_timesteps=400))
    enjoy(playing(sb3_run, env="Pendulum-v1", load_checkpoint=64))
    normalised = enjoy(playing(sb3_run, env="Pendulum-v1", n_timesteps=400, norm_reward=True))
    assert seen[0][0] == seen[1][0] + 64
    assert [rest for _, *rest in seen] == [[False, False], [False, False], [False, True]]
    assert len(last.returns) == len(normalised.returns) == 2
    assert np.mean(np.abs(normalised.returns)) < np.mean(np.abs(last.returns)) / 2


def test_missing_statistics_are_named(tmp_path: Path, sb3_run: Path) -> None:
    import shutil

    shutil.copytree(sb3_run, tmp_path / "logs")
    folder = RunFolder.find(tmp_path / "logs", "ppo", "Pendulum-v1")
    folder.normalizer.unlink()
    with pytest.raises(ZooError, match=r"The run was normalised, but its statistics .*vecnormalize.pkl are missing"):
        enjoy(playing(tmp_path / "logs", env="Pendulum-v1"))


def test_training_continues_with_statistics(tmp_path: Path, sb3_run: Path) -> None:
    """Whether they are in the model file or, as Stable-Baselines3 has it, beside it."""
    train(options(tmp_path / "own", env="Pendulum-v1"))
    for logs in (sb3_run, tmp_path / "own"):
        agent = RunFolder.find(logs, "ppo", "Pendulum-v1", 1).final_model
        before = PPO.load(agent, env=make_vec_env("Pendulum-v1"))
        model = train(options(tmp_path / "more", env="Pendulum-v1", trained_agent=str(agent)))
        assert model.num_timesteps == before.num_timesteps + 128
        # 128 steps and the first observations of two environments, and the same again; the count starts at 1e-4.
        assert model.get_vec_normalize_env().obs_rms.count == pytest.approx(2 * (128 + 2), abs=1)


def test_a_model_that_the_format_has_no_equal_of_is_refused() -> None:
    with pytest.raises(ValueError, match="QLearning is unknown to Stable-Baselines3"):
        check_writable(QLearning("FrozenLake-v1"), "sb3")


@pytest.mark.parametrize("save_format", one_of_each(["polyak", "sb3"], "polyak"))
def test_frames_and_normalisation(tmp_path: Path, save_format: str) -> None:
    """The Zoo normalises first and stacks then, so that its statistics are those of one frame."""
    settings = [*SMALL, "frame_stack:2"]
    evaluated = {"eval_freq": 64, "eval_episodes": 1}
    model = train(options(tmp_path, env="Pendulum-v1", save_format=save_format, hyperparams=settings, **evaluated))
    shape = model.get_vec_normalize_env().obs_rms.mean.shape
    assert shape == ((3,) if save_format == "sb3" else (6,))
    assert len(enjoy(playing(tmp_path, env="Pendulum-v1")).returns) == 1
    agent = RunFolder.find(tmp_path, "ppo", "Pendulum-v1").final_model
    again = train(
        options(tmp_path, env="Pendulum-v1", save_format=save_format, hyperparams=settings, trained_agent=str(agent))
    )
    assert again.get_vec_normalize_env().obs_rms.mean.shape == shape


def test_training_continues_with_its_replay_buffer(tmp_path: Path) -> None:
    settings = ["learning_starts:20", "buffer_size:500", "batch_size:16", "policy_kwargs:dict(net_arch=[8])"]
    off_policy = {"algo": "sac", "env": "Pendulum-v1", "n_timesteps": 60, "hyperparams": settings}
    train(options(tmp_path, save_replay_buffer=True, **off_policy))
    agent = RunFolder.find(tmp_path, "sac", "Pendulum-v1").final_model
    model = train(options(tmp_path, trained_agent=str(agent), **off_policy))
    assert isinstance(model, SAC)
    assert model.num_timesteps == 120
    assert model.replay_buffer is not None
    assert model.replay_buffer.size() == 120


def test_a_checkpoint_is_continued_with_its_own_replay_buffer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The buffer of the run's end holds experience that the checkpoint had not gathered."""
    settings = ["learning_starts:20", "buffer_size:500", "batch_size:16", "policy_kwargs:dict(net_arch=[8])"]
    off_policy = {"algo": "sac", "env": "Pendulum-v1", "n_timesteps": 60, "hyperparams": settings, "verbose": 1}
    ended = train(options(tmp_path, save_replay_buffer=True, save_freq=20, **off_policy))
    run = RunFolder.find(tmp_path, "sac", "Pendulum-v1")
    capsys.readouterr()
    again = train(options(tmp_path, trained_agent=str(run.checkpoints()[20]), **off_policy))
    assert (again.num_timesteps, again.replay_buffer.size()) == (80, 60)
    assert "replay_buffer.pkl is of the end of the run, not of rl_model_20_steps.zip" in capsys.readouterr().err
    ended.save_replay_buffer(run.path / "rl_model_replay_buffer_20_steps.pkl")
    again = train(options(tmp_path, trained_agent=str(run.checkpoints()[20]), **off_policy))
    assert again.replay_buffer.size() == 120
    assert "rl_model_replay_buffer_20_steps.pkl" in capsys.readouterr().out


def test_hindsight_waits_for_the_first_episode(tmp_path: Path) -> None:
    """Parking's episodes last up to 500 steps, and many more than `learning_starts`: nothing to relabel until then."""
    pytest.importorskip("highway_env")
    settings = ["policy_kwargs:dict(net_arch=[8])", "batch_size:16", "learning_starts:2"]
    goals = {"algo": "tqc", "env": "parking-v0", "hyperparams": settings, "n_timesteps": 120, "seed": 1}
    model = train(options(tmp_path, env_kwargs=["config:{'duration': 10}"], **goals))
    folder = RunFolder.find(tmp_path, "tqc", "parking-v0")
    _, header, *episodes = (folder.path / "0.monitor.csv").read_text().splitlines()
    assert header == "r,l,t,is_success"
    first = int(episodes[0].split(",")[1])
    assert 2 < first < 120
    assert model._n_updates <= 120 - (first - 1), "no update before the first episode has ended"
    assert enjoy(playing(tmp_path, algo="tqc", env="parking-v0", n_timesteps=60)).successes


def test_what_stable_baselines3_lacks_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=r"--save-format sb3: models of C51 cannot be written"):
        train(options(tmp_path / "logs", algo="c51", save_format="sb3", hyperparams=[]))
    with pytest.raises(ZooError, match="--save-format must be one of polyak, sb3, got 'sb4'. Did you mean 'sb3'"):
        train(options(tmp_path / "logs", save_format="sb4"))
    assert not (tmp_path / "logs").exists()


def test_the_name_that_was_given_is_that_of_the_folder(tmp_path: Path) -> None:
    small = ["n_steps:16", "batch_size:16", "n_epochs:1", "policy_kwargs:dict(lstm_hidden_size=8)", "n_envs:2"]
    train(options(tmp_path, algo="ppo_lstm", env="CartPoleNoVel-v1", n_timesteps=64, hyperparams=small))
    assert (tmp_path / "ppo_lstm" / "CartPoleNoVel-v1_1" / "CartPoleNoVel-v1.zip").is_file()
    assert enjoy(playing(tmp_path, algo="ppo_lstm", env="CartPoleNoVel-v1")).returns


def test_a_minibatch_larger_than_a_rollout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Some of the Zoo's settings have one; a mistake of one's own is an error all the same."""
    path = tmp_path / "ppo.yml"
    path.write_text("CartPole-v1: {n_timesteps: 64, n_steps: 8, batch_size: 256, n_envs: 2}")
    model = train(options(tmp_path, conf_file=str(path), hyperparams=[], n_timesteps=32))
    assert model.batch_size == 16
    assert "batch_size=256 of" in capsys.readouterr().err
    with pytest.raises(ZooError, match="batch_size"):
        train(options(tmp_path, hyperparams=["n_steps:8", "batch_size:256", "n_envs:2"]))


# -- films ------------------------------------------------------------------------------------------------------------


def test_films_of_a_model(tmp_path: Path, sb3_run: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    imageio = pytest.importorskip("imageio.v3")
    film = ["--env", "Pendulum-v1", "-f", sb3_run, "-o", tmp_path / "films", "-n", 6]
    assert run("record_video", *film) == 0
    assert run("record-video", *film, "--load-best", "-g", "--n-envs", 2) == 0
    assert run("record-video", *film, "--load-last-checkpoint", "--no-render") == 0
    end = "ppo-Pendulum-v1-step-0-to-step-6"
    names = {f"final-model-{end}.mp4", f"best-model-{end}.gif", f"checkpoint-128-{end}.mp4"}
    assert {path.name for path in (tmp_path / "films").iterdir()} == names
    assert len(imageio.imread(tmp_path / "films" / f"final-model-{end}.mp4", plugin="FFMPEG", index=None)) == 6
    tiles = imageio.imread(tmp_path / "films" / f"best-model-{end}.gif", index=None)
    assert len(tiles) == 6
    assert tiles.shape[1] == 2 * tiles.shape[2] or tiles.shape[2] == 2 * tiles.shape[1], "two environments, tiled"


def test_one_film_through_all_checkpoints(sb3_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imageio = pytest.importorskip("imageio.v3")
    from polyak.zoo import recording

    captions: list[str] = []

    def captioned(frame: np.ndarray, text: str) -> np.ndarray:
        captions.append(text)
        return frame

    monkeypatch.setattr(recording, "captioned", captioned)
    path = record_training(RecordTrainingOptions(env="Pendulum-v1", folder=str(sb3_run), n_timesteps=3, gif=True))
    assert path == RunFolder.find(sb3_run, "ppo", "Pendulum-v1").path / "training.gif"
    assert len(imageio.imread(path, index=None)) == 9
    assert captions == ["64 steps"] * 3 + ["128 steps"] * 3 + ["final model"] * 3


def test_mistakes_in_asking_for_films(tmp_path: Path, sb3_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(options(tmp_path))
    for words, message in (
        (["record-training", "-f", tmp_path], "No checkpoints in"),
        (["record-training", "-f", tmp_path, "--load-best"], "record-training films every checkpoint"),
        (["record-video", "-f", tmp_path, "--load-checkpoint", 7], "No checkpoint at 7 steps"),
        (["record-video", "-f", tmp_path, "-n", 0], "--n-timesteps must be at least 1, got 0"),
        (["record-video", "-f", tmp_path, "-o", "/proc/x"], "--output-folder '/proc/x' cannot be written"),
        (["enjoy", "-f", tmp_path, "--n-envs", 0], "--n-envs must be at least 1, got 0"),
    ):
        assert run(*words) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.mp4"))


# -- enjoy ------------------------------------------------------------------------------------------------------------


def test_a_run_without_normalised_rewards_says_so(tmp_path: Path) -> None:
    train(options(tmp_path, hyperparams=SMALL[:-1]))
    with pytest.raises(ZooError, match="--norm-reward: .* was trained without normalisation"):
        enjoy(playing(tmp_path, norm_reward=True))


def test_custom_objects_leave_what_cannot_be_read_unread(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    train(options(tmp_path, hyperparams=SMALL[:-1]))
    path = RunFolder.find(tmp_path, "ppo", "CartPole-v1").final_model
    model = PPO.load(path)
    model.learning_rate = lambda left: 1e-3 * left
    model.save(path)
    enjoy(playing(tmp_path, custom_objects=True))
    assert not [warning for warning in recwarn if "pickled" in str(warning.message)]
    with pytest.warns(UserWarning, match="pickled"):
        enjoy(playing(tmp_path))


def test_a_half_written_config_is_named(tmp_path: Path) -> None:
    train(options(tmp_path))
    config = RunFolder.find(tmp_path, "ppo", "CartPole-v1").settings_folder / "config.yml"
    for text, message in (("n_envs: [1, 2", "as plain YAML"), ("n_env", "must map names to values")):
        config.write_text(text)
        with pytest.raises(ZooError, match=f"config.yml.*{message}"):
            enjoy(playing(tmp_path))
