"""In which scale observations are: whoever asks a model for an action says so, and experience is learned from as it was
acted on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from polyak import BC, DQN, PPO, SAC, DAgger
from polyak.callbacks.past_selves import Frozen
from polyak.compat import sb3
from polyak.envs import DummyVecEnv, VecCheckNan, VecFrameStack, VecMonitor, VecNormalize, make_vec_env
from polyak.envs.normalisation_scale import as_seen_in, shown_to
from polyak.envs.vec.vec_env import VecEnvWrapper
from polyak.evaluation.in_environments import evaluate
from polyak.evaluation.off_policy.log_probs import log_prob_of
from polyak.evaluation.off_policy.policy_actions import choices_of
from polyak.experience import collect
from polyak.nn.networks.standardised import StandardisedExtractor
from polyak.warning import forget
from tests.pairs import one_of_each
from tests.worlds import World


class Sided(World):
    """Episodes of 20 steps; an observation is 100 plus or minus up to 1, and its side is the action to take."""

    observation_space, length, truncates = spaces.Box(0.0, 200.0, (1,), np.float32), 20, True

    def look(self) -> np.ndarray:
        self.seen = (100 + self.np_random.uniform(-1, 1, 1)).astype(np.float32)
        return self.seen

    def act(self, action: Any) -> float:
        return float(action == (self.seen[0] > 100))


class Pushed(Sided):
    """The same with a continuous action, whose sign counts."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return super().step(int(action[0] > 0))


def _side(observation: np.ndarray) -> int:
    return int(observation[0] > 100)


def _normalised(env: Any = Sided) -> VecNormalize:
    return VecNormalize(make_vec_env(env, 2, seed=0))


@pytest.fixture(scope="module")
def expert() -> PPO:
    """Has learned under VecNormalize, and has its environment."""
    options = {"n_steps": 64, "batch_size": 32, "learning_rate": 3e-3, "gamma": 0.5, "seed": 0, "device": "cpu"}
    return PPO("MlpPolicy", _normalised(), **options).learn(1600)


@pytest.fixture(scope="module")
def file(expert: PPO, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "expert"
    expert.save(path)
    return path


OBSERVATIONS = np.array([[99.2], [99.5], [99.8], [100.2], [100.5], [100.8]], np.float32)
SIDES = [0, 0, 0, 1, 1, 1]


# -- who asks a model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", one_of_each(["live", "from a file", "from a file, in an environment"], "from a file"))
def test_a_model_gets_raw_observations_in_its_own_scale(kind: str, expert: PPO, file: Path) -> None:
    env = None if kind == "from a file" else make_vec_env(Sided, 2)
    model = expert if kind == "live" else PPO.load(file, env=env)
    actions, _ = model.predict(shown_to(model, OBSERVATIONS), deterministic=True)
    assert actions.tolist() == SIDES
    assert Frozen(model, deterministic=True)(OBSERVATIONS, None).tolist() == SIDES
    assert choices_of(model, OBSERVATIONS, Sided.action_space, deterministic=True).argmax(1).tolist() == SIDES
    assert np.all(log_prob_of(model, OBSERVATIONS, np.array(SIDES)) > np.log(0.5))
    dataset = collect(Sided(), model, 100, deterministic=True, seed=0)
    assert np.mean(dataset.rewards) > 0.9


@pytest.mark.parametrize("kind", one_of_each(["live", "from a file"], "from a file"))
def test_an_expert_is_shown_observations_in_its_own_scale(kind: str, expert: PPO, file: Path) -> None:
    model = expert if kind == "live" else PPO.load(file, env=make_vec_env(Sided, 2))
    dagger = DAgger("MlpPolicy", Sided(), expert=model, seed=0, steps_per_round=200, learning_rate=3e-3).learn(400)
    assert evaluate(dagger, Sided(), 5, seed=1).mean > 17


def test_a_model_that_normalises_by_itself_is_not_shown_normalised_observations(file: Path) -> None:
    model = PPO.load(file)
    for env in (Sided(), VecNormalize.from_state_dict(make_vec_env(Sided), _state(file)), _normalised()):
        assert evaluate(model, env, 5, seed=1).mean > 18
    stacked = VecFrameStack(_normalised(), 1)
    with pytest.raises(ValueError, match="VecFrameStack stands around its VecNormalize"):
        as_seen_in(stacked, model)


def _state(file: Path) -> dict[str, Any]:
    normalizer = PPO.load(file).normalisation.loaded
    assert normalizer is not None
    return normalizer.state_dict()


def test_a_face_that_leaves_normalisation_to_the_program_says_so(file: Path) -> None:
    model = sb3.PPO.load(file)
    assert not model.normalisation.is_by_itself
    assert model.predict(shown_to(model, OBSERVATIONS), deterministic=True)[0].tolist() == SIDES


def test_dagger_standardises_what_its_networks_get() -> None:
    options: dict[str, Any] = {"steps_per_round": 200, "learning_rate": 3e-3, "seed": 0}
    model = DAgger("MlpPolicy", _normalised(), expert=_side, **options).learn(400)
    assert evaluate(model, model.get_env(), 5, seed=1).mean > 18  # type: ignore[arg-type]
    standardised = next(m for m in model.policy.modules() if isinstance(m, StandardisedExtractor))
    assert float(standardised.norm.state_dict()["mean"].abs().max()) < 3


def test_a_model_that_standardises_by_itself_refuses_to_be_normalised_for() -> None:
    dataset = collect(Sided(), lambda obs: _side(obs), 400, seed=0)
    model = BC("MlpPolicy", dataset, learning_rate=3e-3, seed=0).learn(300)
    before = model.predict(OBSERVATIONS, deterministic=True)[0].tolist()
    with pytest.raises(ValueError, match="VecNormalize would do so first"):
        model.set_env(_normalised())
    assert model.get_env() is None
    model.set_env(VecNormalize(make_vec_env(Sided), norm_obs=False))
    assert model.predict(OBSERVATIONS, deterministic=True)[0].tolist() == before == SIDES


def test_a_model_that_learned_raw_observations_warns_of_normalised_ones() -> None:
    forget()
    model = PPO("MlpPolicy", make_vec_env(Sided, 2), n_steps=32).learn(64)
    with pytest.warns(UserWarning, match="has another scale now"):
        model.set_env(_normalised())


# -- what stands around VecNormalize -----------------------------------------------------------------------------------


class Bonus(VecEnvWrapper):
    """Adds 1000 to each reward."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards + 1000, dones, infos


class Halved(VecEnvWrapper):
    """Halves observations, and passes rewards on."""

    passes_on = ("rewards",)

    def reset(self) -> Any:
        return self.venv.reset() / 2

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            if "terminal_observation" in info:
                info["terminal_observation"] = info["terminal_observation"] / 2
        return observations / 2, rewards, dones, infos


def _sac(env: Any, **options: Any) -> SAC:
    return SAC("MlpPolicy", env, learning_starts=10, device="cpu", policy_kwargs={"net_arch": [8]}, **options)


def test_a_bonus_around_it_is_replayed() -> None:
    forget()
    with pytest.warns(UserWarning, match="Bonus stands around VecNormalize"):
        model = _sac(Bonus(_normalised(Pushed)))
    model.learn(60)
    assert model.replay_buffer is not None
    assert model.replay_buffer.rewards[:30].min() > 900
    assert float(model.replay_buffer.sample(32, env=model._vec_normalize_env).rewards.min()) > 900  # type: ignore[arg-type]


@pytest.mark.parametrize(("wrap", "overlap"), [(Halved, True), (lambda env: VecFrameStack(env, 2), False)])
def test_observations_changed_around_it_are_learned_from_as_they_were_acted_on(wrap: Any, overlap: bool) -> None:
    forget()
    with pytest.warns(UserWarning, match="changes observations"):
        model = _sac(wrap(_normalised(Pushed)), overlap=overlap, n_steps=2)
    model.learn(100)
    buffer = model.replay_buffer
    assert buffer is not None
    assert np.abs(buffer.observations[:50]).max() <= 10  # normalised, where raw ones are 100
    assert set(np.unique(buffer.rewards[:50])) <= {0.0, 1.0}  # raw, to be normalised by the newest statistics
    batch = buffer.sample(16, env=model._vec_normalize_env)  # type: ignore[arg-type]
    assert np.abs(batch.next_observations.numpy()).max() <= 10


def test_what_changes_nothing_around_it_goes_on_as_before() -> None:
    model = _sac(VecCheckNan(VecMonitor(_normalised(Pushed)))).learn(60)
    assert model.replay_buffer is not None
    assert model.replay_buffer.observations[:30].min() > 90
    assert set(np.unique(model.replay_buffer.rewards[:30])) <= {0.0, 1.0}
    assert isinstance(model._vec_normalize_env, VecNormalize)


def test_images_turned_around_it_are_stored_turned() -> None:
    class Images(Sided):
        observation_space = spaces.Box(0, 255, (36, 40, 3), np.uint8)

        def look(self) -> np.ndarray:
            self.seen = np.full(1, 100, np.float32)
            return np.broadcast_to(np.array([7, 8, 9], np.uint8), (36, 40, 3))

    forget()
    envs = VecNormalize(DummyVecEnv([Images]), norm_obs=False)
    model = DQN("CnnPolicy", envs, learning_starts=100, buffer_size=100, device="cpu").learn(30)
    assert model.replay_buffer is not None
    assert model.replay_buffer.observations.shape[2:] == (3, 36, 40)
    for channel, value in enumerate((7, 8, 9)):
        assert np.all(model.replay_buffer.observations[:30, :, channel] == value)


def test_a_file_knows_that_observations_were_changed_after_normalisation(tmp_path: Path) -> None:
    forget()
    model = PPO("MlpPolicy", Halved(_normalised()), n_steps=32).learn(64)
    model.save(tmp_path / "model")
    seen = np.array([[-0.4], [0.4]], np.float32)
    alone = PPO.load(tmp_path / "model")
    with pytest.warns(UserWarning, match=r"Halved\(VecNormalize"):
        assert (
            alone.predict(seen, deterministic=True)[0].tolist() == model.predict(seen, deterministic=True)[0].tolist()
        )
    for wrap in (lambda env: env, VecMonitor, lambda env: VecFrameStack(env, 1)):
        with pytest.raises(ValueError, match="wrapped alike, Halved"):
            PPO.load(tmp_path / "model", env=wrap(make_vec_env(Sided, 2)))
    inside = PPO.load(tmp_path / "model", env=VecCheckNan(Halved(make_vec_env(Sided, 2)))).get_env()
    assert isinstance(inside, VecCheckNan)
    assert isinstance(inside.venv, Halved)
    assert isinstance(inside.venv.venv, VecNormalize)
    assert np.abs(inside.reset()).max() <= 5  # of normalised ones, half
    for one in (model, alone):
        with pytest.raises(ValueError, match="Halved changed after VecNormalize"):
            shown_to(one, OBSERVATIONS)
        with pytest.raises(ValueError, match="Halved changed after VecNormalize"):
            Frozen(one)
    again = PPO.load(tmp_path / "model", env=Halved(_normalised()))
    again.save(tmp_path / "again")
    assert PPO.load(tmp_path / "again").normalisation.above == ("Halved",)


def test_an_environment_made_by_its_name_lacks_the_wrappers(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", Halved(VecNormalize(make_vec_env("CartPole-v1"))), n_steps=64).learn(64)
    model.save(tmp_path / "model")
    for one in (model, PPO.load(tmp_path / "model")):
        with pytest.raises(ValueError, match="no Halved"):
            evaluate(one, "CartPole-v1", 1)


@pytest.mark.parametrize(("outer", "inner"), [({}, {}), ({"norm_obs": False}, {"norm_reward": False})])
def test_normalisation_of_what_is_normalised_is_refused(outer: dict[str, Any], inner: dict[str, Any]) -> None:
    envs = VecNormalize(VecMonitor(VecNormalize(make_vec_env(Sided), **inner)), **outer)
    for cls in (PPO, DQN):
        with pytest.raises(ValueError, match="around another VecNormalize"):
            cls("MlpPolicy", envs)
