"""Actors: what passes through them, that they go into other processes, and what they take along."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak import DQN, PPO, SAC, TD3
from polyak.collecting.actor import Actor
from polyak.collecting.exploration import (
    ActingProgress,
    AdditiveNoise,
    EpsilonGreedy,
    RandomActions,
    StateDependentExploration,
    WarmUp,
)
from polyak.collecting.runner import Runner
from polyak.envs import DummyVecEnv
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.nn import Policy
from polyak.nn.codec import ActionCodec
from polyak.nn.networks.encoders import Obs
from polyak.nn.policies.base import Decision, Noise, State
from polyak.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from tests.warm import python
from tests.worlds import World

SPACE, NINE = spaces.Box(-10, 10, (2,), np.float32), spaces.Discrete(9)


# -- memory and masks --------------------------------------------------------------------------------------------------


class Counts(Policy):
    """Remembers how many steps of the episode it has seen, and does as many as its action."""

    def __init__(self, observation_space: spaces.Space = SPACE, action_space: spaces.Space = NINE) -> None:
        super().__init__(observation_space, action_space)
        self.layer = nn.Linear(2, 2)

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        raise AssertionError("without a memory nobody knows")

    def initial_memory(self, batch: int) -> State:
        return {"count": torch.zeros(batch, 1, dtype=torch.int64)}

    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        assert state is not None
        count = state["count"] + 1
        return Decision(count[:, 0], {"twice": 2.0 * count}, {"count": count})


class Ends(World):
    """Episodes of a given length."""

    observation_space, action_space, pays = SPACE, NINE, 1.0

    def look(self) -> np.ndarray:
        return np.full(2, self.t, np.float32)


def test_memory_starts_anew_with_each_episode_of_each_environment() -> None:
    runner = Runner(FromVecEnv(DummyVecEnv([lambda: Ends(length=2), lambda: Ends(length=3)])), Actor(Counts()))
    steps = [runner.step() for _ in range(6)]
    assert [step.actions.tolist() for step in steps] == [[1, 1], [2, 2], [1, 3], [2, 1], [1, 2], [2, 3]]
    assert [step.extras["count"][:, 0].tolist() for step in steps[:3]] == [[0, 0], [1, 1], [0, 2]]  # before the step
    assert steps[2].extras["twice"].tolist() == [[2.0], [6.0]]
    assert steps[1].terminated.tolist() == steps[1].dones.tolist() == [True, False]
    assert not steps[1].truncated.any()


def test_a_memory_moves_on_while_actions_are_random() -> None:
    policy, progress = Counts(), ActingProgress(epsilon=1.0)
    actor = Actor(policy, {"e": EpsilonGreedy(progress, RandomActions(policy.action_space, policy.codec))})
    obs = np.zeros((2, 2), np.float32)
    for _ in range(3):
        actor.act(obs)
    progress.epsilon = 0.0
    assert actor.act(obs).actions.tolist() == [4, 4]


def test_a_deterministic_actor_takes_the_likeliest_actions() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu", seed=0)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    expected = model.predict(obs, deterministic=True)[0]
    np.testing.assert_array_equal(Actor(model.policy, deterministic=True).act(obs).env_actions, expected)
    assert (Actor(model.policy).act(obs).env_actions != expected).any()


# -- exploration -------------------------------------------------------------------------------------------------------


def test_warm_up_ends_when_the_loop_says_so() -> None:
    space = spaces.Box(-3, 5, (1,), np.float32, seed=0)
    progress, codec = ActingProgress(), ActionCodec(space, squash=True)
    part = WarmUp(progress, 100, RandomActions(space, codec))
    policy, starts = Counts(), np.zeros(2000, bool)
    actions = part.before(policy, starts)
    assert actions is not None
    assert actions.shape == (2000, 1)
    assert -1 <= actions.min() < -0.99 < 0.99 < actions.max() <= 1
    progress.steps = 100
    assert part.before(policy, starts) is None


def stored(model: Any, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The first observations and actions of a training that makes no update."""
    model.learn(steps)
    buffer = model.replay_buffer
    return np.asarray(buffer.observations[:steps, 0]), np.asarray(buffer.actions[:steps, 0])


def test_the_first_actions_are_the_policys_where_none_are_to_be_random() -> None:
    """A deterministic actor's are known; the same model with random ones takes others."""
    small: dict[str, Any] = {"buffer_size": 50, "learning_starts": 40, "device": "cpu", "seed": 0}
    for cls, env in ((TD3, "Pendulum-v1"), (DQN, "CartPole-v1")):
        greedy = {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0} if cls is DQN else {}
        model = cls("MlpPolicy", env, random_warm_up=False, **small, **greedy)
        observations, actions = stored(model, 30)
        expected = np.array(model.predict(observations, deterministic=True)[0]).reshape(actions.shape)
        scale = 1 if cls is DQN else 2  # the bound of torques
        np.testing.assert_allclose(scale * actions, expected, rtol=0, atol=1e-5)
        _, random = stored(cls("MlpPolicy", env, **small, **greedy), 30)
        assert not np.allclose(random, actions)


def test_the_first_actions_explore_by_gsde_where_that_is_asked_for() -> None:
    """One matrix of noise for a rollout: the same state twice, the same action."""
    small: dict[str, Any] = {"buffer_size": 300, "learning_starts": 40, "device": "cpu", "seed": 0}
    gsde: dict[str, Any] = {"use_sde": True, "train_freq": 30}
    model = SAC("MlpPolicy", "Pendulum-v1", use_sde_at_warmup=True, **gsde, **small)
    observations, actions = stored(model, 30)
    again, _ = model.policy.predict(observations[:1], deterministic=False)
    np.testing.assert_allclose(2 * actions[0], again[0], rtol=0, atol=1e-5)  # 2 is the bound of torques
    _, random = stored(SAC("MlpPolicy", "Pendulum-v1", **gsde, **small), 30)
    assert not np.allclose(random, actions)


def test_whether_the_first_actions_are_random_may_change_while_it_learns() -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=40, buffer_size=100, device="cpu", seed=0).learn(5)
    assert "warm_up" in model.runner.actor.exploration
    model.random_warm_up = False
    model.learn(5, reset_num_timesteps=False)
    assert "warm_up" not in model.runner.actor.exploration
    assert model._n_updates == 0


def test_noise_starts_anew_only_where_an_episode_begins() -> None:
    noise = VectorizedActionNoise(OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1)), 3)
    part, policy = AdditiveNoise(noise), Counts()
    part.after(np.zeros((3, 1)))
    before = part.state(policy)["noise_prev"].copy()
    part.before(policy, np.array([False, True, False]))
    after = part.state(policy)["noise_prev"]
    assert after[1] == 0
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    clipped = AdditiveNoise(NormalActionNoise(np.zeros(1), np.full(1, 50.0))).after(np.zeros((9, 1)))
    assert set(np.abs(clipped).flatten()) == {1.0}


@pytest.mark.parametrize(("every", "draws"), [(-1, [1, 0, 0, 0]), (1, [2, 1, 1, 1]), (3, [2, 0, 0, 1])])
def test_the_cadence_of_gsde(every: int, draws: list[int]) -> None:
    count = []

    class Noisy(Counts):
        def reset_noise(self, n_envs: int = 1) -> None:
            count.append(n_envs)

    part, policy, seen = StateDependentExploration(every), Noisy(), []
    part.begin(policy, 4)
    for _ in draws:
        part.before(policy, np.zeros(4, bool))
        seen.append(len(count))
        count.clear()
    assert seen == draws


# -- other processes ---------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "learning_starts": 20, "batch_size": 8, "seed": 0}
MODELS: dict[str, Any] = {
    "PPO": lambda: PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, device="cpu", seed=0),
    "PPO gSDE": lambda: PPO("MlpPolicy", "Pendulum-v1", n_steps=16, batch_size=16, use_sde=True, device="cpu", seed=0),
    "DQN": lambda: DQN("MlpPolicy", "CartPole-v1", exploration_final_eps=0.5, device="cpu", **SMALL),
    "SAC": lambda: SAC("MlpPolicy", "Pendulum-v1", device="cpu", **SMALL),
    "TD3": lambda: TD3(
        "MlpPolicy",
        "Pendulum-v1",
        action_noise=OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1)),
        device="cpu",
        **SMALL,
    ),
}
REMOTE = """
import pickle, sys
import numpy as np
import torch
everything = {}
for name, data in pickle.load(open(sys.argv[1], "rb")).items():
    actor, observations = pickle.loads(data)
    torch.manual_seed(7)
    np.random.seed(7)
    actor.begin(3)
    acted = [actor.act(o, np.zeros(3, bool)) for o in observations]
    everything[name] = [(a.env_actions, a.actions) for a in acted]
pickle.dump(everything, open(sys.argv[2], "wb"))
"""


@pytest.fixture(scope="module")
def acted_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any, Any]]:
    """Each trained model, the observations that its actor was shown in one fresh process, and how it acted there."""
    folder, shown = tmp_path_factory.mktemp("fresh"), {}
    models = {name: make().learn(40) for name, make in MODELS.items()}
    for name, model in models.items():
        shape = (8, 3, *model.observation_space.shape)
        shown[name] = list(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    sent = {name: pickle.dumps((model.runner.actor, shown[name])) for name, model in models.items()}
    (folder / "actors").write_bytes(pickle.dumps(sent))
    python(["-c", REMOTE, folder / "actors", folder / "answers"], check=True)
    answers = pickle.loads((folder / "answers").read_bytes())
    return {name: (models[name], shown[name], answers[name]) for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_an_actor_answers_alike_in_a_fresh_process(name: str, acted_elsewhere: dict[str, tuple[Any, Any, Any]]) -> None:
    model, observations, answers = acted_elsewhere[name]
    actor = model.runner.actor
    data = pickle.dumps(actor)
    weights = sum(tensor.nbytes for tensor in model.policy.state_dict().values())
    assert len(data) < 2 * weights + 60_000, "an optimizer would be twice the weights"
    assert b"torch.optim" not in data
    torch.manual_seed(7)
    np.random.seed(7)
    actor.begin(3)
    for obs, (env_actions, actions) in zip(observations, answers, strict=True):
        acted = actor.act(obs, np.zeros(3, bool))
        assert acted.env_actions.tobytes() == env_actions.tobytes()
        assert acted.actions.tobytes() == actions.tobytes()
    model.learn(20, reset_num_timesteps=False)  # pickling took nothing away


def test_an_actor_with_a_copy_goes_on_where_it_was_and_follows_the_policy_no_longer() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"memory": "gru", "memory_size": 4}, device="cpu", seed=0)
    actor, obs = Actor(model.policy, deterministic=True), np.ones((3, 4), np.float32)
    actor.act(obs)
    remembered = {name: state.clone() for name, state in actor.memory.items()}  # type: ignore[union-attr]
    expected = copy.deepcopy(actor).act(obs).actions
    actor.act_by_copy()
    assert actor.policy is not model.policy
    for name, state in remembered.items():
        torch.testing.assert_close(actor.memory[name], state, rtol=0, atol=0)  # type: ignore[index]
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.mul_(-3)
    np.testing.assert_array_equal(actor.act(obs).actions, expected)


def test_a_copy_takes_newer_weights() -> None:
    model = MODELS["DQN"]()
    remote = pickle.loads(pickle.dumps(Actor(model.policy, deterministic=True)))
    obs = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(torch.randn_like(parameter))
    here = Actor(model.policy, deterministic=True).act(obs).actions
    assert (remote.act(obs).actions != here).any()
    remote.load_weights(model.policy.state_dict())
    np.testing.assert_array_equal(remote.act(obs).actions, here)


def test_the_actor_of_a_copied_model_holds_the_copys_policy() -> None:
    model = MODELS["SAC"]().learn(30)
    other = copy.deepcopy(model)
    assert other.runner.actor.policy is other.policy is not model.policy
    assert model.runner.actor.policy is model.policy
