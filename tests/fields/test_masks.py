"""Masks of allowed choices: found wherever environments say them, never violated, heeded by every loss and target."""

from itertools import product
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import polyak
from polyak.collecting.exploration import RandomActions
from polyak.envs import DummyVecEnv, SubprocVecEnv, VecNormalize
from polyak.envs.masks import find_masks, mask_size, sample_allowed
from polyak.envs.nested_spaces import parts
from polyak.evaluation.in_environments import evaluate
from polyak.experience import ReplayBuffer, Transition
from polyak.experience.schema import Column
from polyak.nn.backends.numpy import Numpy
from polyak.nn.codec import ActionCodec
from polyak.nn.distributions.discrete import (
    BernoulliFamily,
    CategoricalFamily,
    MultiCategoricalFamily,
    SparseCategoricalFamily,
)
from polyak.ops.tsallis import sparsemax
from tests.tolerance import bound

COMPOSED: dict[str, spaces.Space] = {
    "dict": spaces.Dict(
        a=spaces.Discrete(4, start=3),
        b=spaces.Box(-1, 1, (2,)),
        c=spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([3, 2], start=[1, -1]))),
    )
}
ACTIONS: dict[str, spaces.Space] = {
    "discrete": spaces.Discrete(5),
    "discrete_from_3": spaces.Discrete(4, start=3),
    "multi_discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi_binary": spaces.MultiBinary(3),
}


class Forbidding(gym.Env):
    """Forbids most choices, others after every step, and fails on what it forbids. Right choices are those allowed
    with the smallest numbers, which bring 1 each.

    Args:
        actions: what to choose from.
        says: how it tells: "method", "info" or "observation".
        length: steps of an episode, which a time limit ends if ``cuts``.
    """

    def __init__(self, actions: spaces.Space, says: str = "method", length: int = 7, cuts: bool = False) -> None:
        self.action_space, self.says, self.length, self.cuts = actions, says, length, cuts
        self.size = mask_size(actions)
        seen = spaces.Box(0, 1, (self.size,), np.float32)
        self.observation_space = spaces.Dict({"x": seen, "action_mask": spaces.Box(0, 1, (self.size,), np.int8)})
        if says != "observation":
            self.observation_space = seen
        if says == "method":
            self.action_masks = lambda: self.mask.copy()

    def _tell(self) -> tuple[Any, dict[str, Any]]:
        self.mask = np.zeros(self.size, dtype=bool)
        start = 0
        for n in self._sizes():
            allowed = self.np_random.choice(n, self.np_random.integers(1, n), replace=False)
            self.mask[start + allowed] = True
            start += n
        x = self.mask.astype(np.float32)
        obs = {"x": x, "action_mask": self.mask.astype(np.int8)} if self.says == "observation" else x
        return obs, {"action_mask": self.mask.astype(np.int8)} if self.says == "info" else {}

    def _sizes(self) -> list[int]:
        return [n for part in parts(self.action_space) for n in self._sizes_of(part.space)]

    @staticmethod
    def _sizes_of(space: spaces.Space) -> list[int]:
        if isinstance(space, spaces.Box):
            return []
        if isinstance(space, spaces.Discrete):
            return [int(space.n)]
        return [2] * space.n if isinstance(space, spaces.MultiBinary) else space.nvec.reshape(-1).tolist()

    def _chosen(self, action: Any) -> np.ndarray:
        """The choices in it, from 0."""
        found = [part for part in parts(self.action_space) if self._sizes_of(part.space)]
        counted = [np.asarray(part.of(action), np.int64) - getattr(part.space, "start", 0) for part in found]
        return np.concatenate([choices.reshape(-1) for choices in counted])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._tell()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        number = isinstance(self.action_space, spaces.Discrete)
        assert self.action_space.contains(np.int64(action) if number else action), action
        chosen = self._chosen(action)
        right, start = 0, 0
        for n, choice in zip(self._sizes(), chosen, strict=True):
            assert self.mask[start + choice], f"{action} is forbidden by {self.mask}"
            right += int(choice == self.mask[start : start + n].argmax())
            start += n
        self.t += 1
        over = self.t == self.length
        obs, info = self._tell()
        return obs, float(right), over and not self.cuts, over and self.cuts, info


def vector(name: str = "discrete", says: str = "method", n: int = 2, **options: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda: Forbidding((ACTIONS | COMPOSED)[name], says, **options)] * n)


def test_random_actions_of_a_space_are_allowed_and_reach_all_that_is() -> None:
    for name, space in (ACTIONS | COMPOSED | {"grid": spaces.MultiDiscrete([[3, 2], [2, 4]])}).items():
        space.seed(0)
        env = Forbidding(space, "method")
        env.reset(seed=1)
        tried: list[list[int]] = []
        for _ in range(200):
            action = sample_allowed(space, env.mask)
            assert space.contains(action), name
            tried.append(env._chosen(action).reshape(-1).tolist())
        start = 0
        for n, found in zip(env._sizes(), zip(*tried, strict=True), strict=True):
            # of at most four, each is left out by 200 draws with a probability of at most 0.75 ** 200 = 1e-25
            assert set(found) == set(env.mask[start : start + n].nonzero()[0].tolist()), name
            start += n


@pytest.mark.parametrize("says", ["method", "info", "observation"])
def test_saved_experience_with_masks_is_taken_back_before_environments_say_so(says: str, tmp_path: Path) -> None:
    name = "MultiInputPolicy" if says == "observation" else "MlpPolicy"
    model = polyak.DQN(name, vector(says=says), learning_starts=10, buffer_size=500, compile=False, seed=0)
    model.learn(60, log_interval=None)
    model.save(tmp_path / "model.zip", include=["replay_buffer"])
    model.save_replay_buffer(tmp_path / "rows.pkl")
    resumed = polyak.DQN.load(tmp_path / "model.zip", env=vector(says=says), resume=True)
    given = polyak.DQN.load(tmp_path / "model.zip", env=vector(says=says))
    given.load_replay_buffer(tmp_path / "rows.pkl")
    size = model.replay_buffer.size()
    for other in (resumed, given):
        assert other.replay_buffer.size() == size
        other.learn(60, reset_num_timesteps=False, log_interval=None)
        assert other.replay_buffer.size() == 2 * size
        extras = other.replay_buffer.extras
        np.testing.assert_array_equal(extras["masks"][:size], model.replay_buffer.extras["masks"][:size])
        assert not extras["next_masks"][size : 2 * size].all()


# -- where they come from ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("says", ["method", "info", "observation"])
def test_every_source_says_the_same(says: str, name: str) -> None:
    env = vector(name, says, n=3)
    env.seed(0)
    obs = env.reset()
    masks = find_masks(env)
    now = masks.after_reset(obs)
    actions = RandomActions(env.action_space, ActionCodec(env.action_space))
    for _ in range(20):
        np.testing.assert_array_equal(now, [e.mask for e in env.envs])
        obs, _, dones, infos = env.step(env_actions(env.action_space, actions(3, now)))
        now = masks.after_step(obs, dones, infos)
        for i in dones.nonzero()[0]:
            seen, successors = infos[i]["terminal_observation"], obs
            if says == "observation":
                successors = {key: np.tile(part, (3, 1)) for key, part in seen.items()}
                seen = seen["x"]
            np.testing.assert_array_equal(masks.final(i, successors, infos[i]), seen)


def env_actions(space: spaces.Space, actions: np.ndarray) -> np.ndarray:
    return ActionCodec(space).to_env(actions)


def test_environments_that_allow_everything_have_no_masks() -> None:
    assert find_masks(DummyVecEnv([lambda: gym.make("CartPole-v1")])) is None
    assert find_masks(DummyVecEnv([lambda: gym.make("Pendulum-v1")])) is None


def test_masks_of_another_process() -> None:
    env = SubprocVecEnv([lambda: Forbidding(spaces.Discrete(5))] * 2, start_method="fork")
    try:
        env.seed(0)
        obs = env.reset()
        np.testing.assert_array_equal(find_masks(env).after_reset(obs), obs.astype(bool))
        polyak.PPO("MlpPolicy", env, n_steps=16, batch_size=16, seed=0, device="cpu").learn(64)
    finally:
        env.close()


def test_masks_that_cannot_be_are_refused() -> None:
    env = vector(n=1)
    env.reset()
    env.envs[0].action_masks = lambda: np.zeros(5, bool)
    with pytest.raises(ValueError, match="forbids every choice"):
        find_masks(env).after_reset(None)
    env.envs[0].action_masks = lambda: np.ones(4, bool)
    with pytest.raises(ValueError, match="must have 5 entries"):
        find_masks(env).after_reset(None)
    with pytest.raises(ValueError, match="VecNormalize changes the masks"):
        polyak.PPO("MultiInputPolicy", VecNormalize(vector(says="observation")), device="cpu")


# -- distributions -----------------------------------------------------------------------------------------------------


def random_masks(sizes: list[int], rows: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    masks = np.zeros((rows, sum(sizes)), bool)
    for row in masks:
        start = 0
        for n in sizes:
            row[start + rng.choice(n, rng.integers(1, n + 1), replace=False)] = True
            start += n
    return torch.from_numpy(masks)


@pytest.mark.parametrize("kind", ["one", "several", "coins"])
def test_what_is_allowed_is_renormalised(kind: str) -> None:
    torch.manual_seed(0)
    sizes = {"one": [6], "several": [3, 2, 4], "coins": [2, 2, 2]}[kind]
    family = {"one": CategoricalFamily(6), "several": MultiCategoricalFamily((3, 2, 4)), "coins": BernoulliFamily(3)}
    masks = random_masks(sizes, 40)
    outputs = torch.randn(40, family[kind].n_outputs, requires_grad=True)
    masked = family[kind](outputs).masked(masks)
    if kind == "coins":
        probs = torch.stack([1 - torch.sigmoid(outputs), torch.sigmoid(outputs)], 2).flatten(1)
    else:
        probs = torch.cat([part.softmax(1) for part in outputs.split(sizes, 1)], 1)
    parts = list(zip((probs * masks).split(sizes, 1), masks.split(sizes, 1), strict=True))
    parts = [(part / part.sum(1, keepdim=True), allowed) for part, allowed in parts]
    actions = masked.sample()
    columns = actions.long().reshape(40, -1)
    chosen = torch.stack([part.gather(1, columns[:, [i]])[:, 0] for i, (part, _) in enumerate(parts)], 1)
    assert (chosen > 0).all(), "nothing forbidden"
    torch.testing.assert_close(masked.log_prob(actions), chosen.log().sum(1))
    entropy = sum(-torch.xlogy(part, part).sum(1) for part, _ in parts)
    torch.testing.assert_close(masked.entropy(), entropy, rtol=1e-4, atol=1e-5)
    (masked.log_prob(actions).sum() + masked.entropy().sum()).backward()
    assert outputs.grad.isfinite().all()
    forbidden = ~masks if kind != "coins" else (~masks).unflatten(1, (3, 2)).any(2)
    assert (outputs.grad[forbidden].abs() <= bound(sum(sizes))).all(), "no gradient of what is masked, but for rounding"
    mode = masked.mode().long().reshape(40, -1)
    assert all((mode[:, i] == part.argmax(1)).all() for i, (part, _) in enumerate(parts))


def test_sparse_choices_are_those_among_what_is_allowed() -> None:
    torch.manual_seed(0)
    masks, logits = random_masks([6], 40), torch.randn(40, 6, requires_grad=True)
    probs = SparseCategoricalFamily(6)(logits).masked(masks).probs
    for row, mask, z in zip(probs, masks, logits, strict=True):
        torch.testing.assert_close(row[mask], sparsemax(z[mask][None])[0])
        assert (row[~mask] == 0).all()
    (probs**2).sum().backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad[~masks] == 0).all()


@pytest.mark.parametrize("name", ACTIONS)
def test_random_actions_are_uniform_among_what_is_allowed(name: str) -> None:
    space = ACTIONS[name]
    space.seed(0)
    sizes = Forbidding(space)._sizes()
    masks = random_masks(sizes, 1).numpy().repeat(4000, 0)
    actions = RandomActions(space, ActionCodec(space))(4000, masks).reshape(4000, -1).astype(int)
    start = 0
    for i, n in enumerate(sizes):
        allowed = masks[0, start : start + n]
        shares = np.bincount(actions[:, i], minlength=n) / 4000
        assert (shares[~allowed] == 0).all()
        assert np.abs(shares[allowed] - 1 / allowed.sum()).max() < 5 * 0.5 / 4000**0.5  # five standard errors
        start += n


# -- training ----------------------------------------------------------------------------------------------------------

SMALL = {"policy_kwargs": {"net_arch": [16]}, "seed": 0, "device": "cpu", "compile": False}
ROLLOUTS = {"n_steps": 32, **SMALL}
REPLAY = {"learning_starts": 40, "buffer_size": 300, "batch_size": 16, "exploration_fraction": 0.5, **SMALL}
EXPLORES = {name: value for name, value in REPLAY.items() if name != "exploration_fraction"}
DISCRETE_ONLY: dict[str, tuple[str, dict[str, Any]]] = {
    "DQN": ("DQN", REPLAY),
    "double n-step prioritised": ("DQN", {**REPLAY, "double": True, "n_steps": 3, "prioritized": True}),
    "noisy dueling": ("DQN", {**EXPLORES, "noisy": True, "dueling": True}),
    "Munchausen": ("DQN", {**REPLAY, "munchausen": True}),
    "C51": ("C51", REPLAY),
    "Munchausen C51": ("C51", {**REPLAY, "munchausen": True}),
    "QRDQN": ("QRDQN", REPLAY),
    "IQN": ("IQN", {**REPLAY, "n_levels": 4, "n_target_levels": 4}),
    "Rainbow": ("Rainbow", EXPLORES),
}


def policy_for(says: str) -> str:
    return "MultiInputPolicy" if says == "observation" else "MlpPolicy"


SAYS = ("method", "info", "observation")
ON_POLICY = [
    *product(["TRPO", "A2C"], [*ACTIONS, *COMPOSED]),
    *product(["ActorCritic", "REINFORCE"], ACTIONS),
    *product(["PQN"], ["discrete", "discrete_from_3"]),
]
QUICK_ON_POLICY = {
    ("TRPO", next(iter(COMPOSED))),
    *((name, "discrete") for name in ("A2C", "ActorCritic", "REINFORCE", "PQN")),
}
#: What is done to a batch does not depend on where its masks came from: only one algorithm of a loop tries them all.
SAID_ON_POLICY = [
    *(
        pytest.param("PPO", name, says, marks=[] if (i + k) % 3 == 0 else pytest.mark.slow)
        for i, name in enumerate([*ACTIONS, *COMPOSED])
        for k, says in enumerate(SAYS)
    ),
    *(
        pytest.param(*case, SAYS[i % 3], marks=[pytest.mark.slow] * (case not in QUICK_ON_POLICY))
        for i, case in enumerate(ON_POLICY)
    ),
]
SAID_WITH_REPLAY = [
    *product(["DQN"], SAYS),
    *(
        pytest.param(name, SAYS[i % 3], marks=[] if name in ("Munchausen C51", "IQN", "Rainbow") else pytest.mark.slow)
        for i, name in enumerate(DISCRETE_ONLY)
        if name != "DQN"
    ),
]


@pytest.mark.parametrize(("algo", "name", "says"), SAID_ON_POLICY)
def test_nothing_forbidden_is_done_on_policy(algo: str, name: str, says: str, tmp_path: Any) -> None:
    options: dict[str, dict[str, Any]] = {"PPO": {**ROLLOUTS, "batch_size": 32}, "A2C": {**SMALL, "n_steps": 5}}
    options["TRPO"] = {**options["PPO"], "n_critic_updates": 2}
    options |= {"ActorCritic": SMALL, "REINFORCE": SMALL}
    options["PQN"] = {**options["PPO"], "exploration_fraction": 0.5}
    model = getattr(polyak, algo)(policy_for(says), vector(name, says), **options[algo]).learn(140)
    assert "masks" in model.rollout_buffer.extras
    goes_on(model, vector(name, says), tmp_path)


@pytest.mark.parametrize(("name", "says"), SAID_WITH_REPLAY)
def test_nothing_forbidden_is_done_with_replay(name: str, says: str, tmp_path: Any) -> None:
    algo, options = DISCRETE_ONLY[name]
    model = getattr(polyak, algo)(policy_for(says), vector("discrete_from_3", says), **options).learn(200)
    assert {"masks", "next_masks"} <= set(model.replay_buffer.storage.columns["extras"])
    goes_on(model, vector("discrete_from_3", says), tmp_path)


def goes_on(model: Any, env: DummyVecEnv, tmp_path: Any) -> None:
    """Its file gives the same actions, evaluation keeps to the masks, and so does training from the file on."""
    model.save(tmp_path / "model.zip")
    loaded = type(model).load(tmp_path / "model.zip", env=env, device="cpu")
    env.seed(1)
    obs = env.reset()
    masks = find_masks(env).after_reset(obs)
    ours, _ = model.predict(obs, deterministic=True, action_masks=masks)
    np.testing.assert_equal(loaded.predict(obs, deterministic=True, action_masks=masks)[0], ours)
    assert evaluate(loaded, env, 3, seed=0).mean > 0
    assert evaluate(loaded, env, 3, seed=0, deterministic=False).mean > 0
    loaded.learn(70, reset_num_timesteps=False)


@pytest.mark.parametrize("algo", ["PPO", "DQN", "PQN"])
@pytest.mark.slow
def test_it_learns_which_of_the_allowed_is_best(algo: str) -> None:
    options = {
        "PPO": {"n_steps": 64, "batch_size": 64, "learning_rate": 3e-3, "gamma": 0.0},
        "DQN": {"learning_starts": 200, "learning_rate": 3e-3, "gamma": 0.0, "train_freq": 4, "batch_size": 64},
        "PQN": {"n_steps": 16, "n_epochs": 4, "learning_rate": 3e-3, "gamma": 0.0},
    }[algo]
    env = vector("discrete", n=4)
    model = getattr(polyak, algo)("MlpPolicy", env, seed=0, device="cpu", policy_kwargs={"net_arch": [32]}, **options)
    assert evaluate(model, env, 40, seed=0).mean < 6
    model.learn(6000)
    assert evaluate(model, env, 40, seed=0).mean > 6.5  # of 7


def test_a_model_that_is_asked_without_masks_may_do_anything() -> None:
    env = vector()
    model = polyak.PPO("MlpPolicy", env, **ROLLOUTS, batch_size=32)
    obs = np.zeros((64, 5), np.float32)
    assert len(set(model.predict(obs)[0].tolist())) == 5
    only_2 = np.tile(np.arange(5) == 2, (64, 1))
    assert set(model.predict(obs, action_masks=only_2)[0].tolist()) == {2}
    assert model.predict(obs[0], action_masks=only_2[0])[0] == 2
    with pytest.raises(ValueError, match="must have 5 entries"):
        model.predict(obs[0], action_masks=np.ones(4, bool))
    with pytest.raises(ValueError, match="does not support action masks"):
        polyak.SAC("MlpPolicy", "Pendulum-v1", device="cpu").predict(np.zeros(3), action_masks=np.ones(4, bool))


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISCRETE_ONLY)
def test_targets_are_those_of_a_smaller_choice(name: str) -> None:
    """With the same two actions forbidden everywhere, the target is that of a network without these."""
    algo, options = DISCRETE_ONLY[name]
    model = getattr(polyak, algo)("MlpPolicy", vector(), **options)
    policy, learner = model.policy, model.learner
    torch.manual_seed(0)
    mask = torch.tensor([True, False, True, True, False])
    rows = 8
    batch = Transition(
        torch.rand(rows, 5), torch.tensor([0, 2, 3, 3, 2, 0, 0, 2])[:, None], torch.randn(rows), torch.rand(rows, 5),
        torch.full((rows,), 0.9), torch.ones(rows), {"masks": mask.expand(rows, 5), "next_masks": mask.expand(rows, 5)},
    )  # fmt: skip
    torch.manual_seed(1)
    masked = learner.td_target(batch)
    with torch.no_grad():  # so low that nobody would choose them
        for network in (policy.q_net, policy.q_net_target):
            shift_away(network, ~mask)
    torch.manual_seed(1)
    unmasked = learner.td_target(batch._replace(extras={}))
    torch.testing.assert_close(masked, unmasked, rtol=1e-4, atol=1e-4)


def shift_away(network: Any, actions: torch.Tensor) -> None:
    """Make a network think that these actions are worth very little, and the others what they are."""
    forward, kind = network.forward, type(network)
    for name in ("forward", "quantiles", "mean"):
        if not hasattr(kind, name) or (name == "forward" and hasattr(kind, "mean")):
            continue
        original = getattr(network, name)
        setattr(network, name, lambda *args, f=original: f(*args) - 1e4 * actions)
    if kind.__name__ in ("QuantileNetwork", "ImplicitQuantileNetwork"):
        network.forward = forward if kind.__name__ == "ImplicitQuantileNetwork" else network.forward


def test_next_masks_of_n_steps_are_those_of_the_last() -> None:
    columns = [Column(name, bool, (20,)) for name in ("masks", "next_masks")]
    buffer = ReplayBuffer(20, spaces.Box(-1, 1, (1,)), spaces.Discrete(20), "cpu", n_steps=3, columns=columns)
    for t in range(12):
        extras = {"masks": np.arange(20)[None] == t, "next_masks": np.arange(20)[None] == t + 1}
        obs = np.full((1, 1), t, np.float32)
        buffer.add(obs, obs + 1, np.zeros((1, 1)), np.zeros(1), np.array([t == 5]), [{}], extras=extras)
    samples = buffer.sample(200)
    now, then = samples.observations.long().flatten(), samples.next_observations.long().flatten()
    torch.testing.assert_close(samples.extras["masks"].int().argmax(1), now)
    torch.testing.assert_close(samples.extras["next_masks"].int().argmax(1), then)
    assert (then - now).unique().tolist() == [1, 2, 3]


# -- arrays ------------------------------------------------------------------------------------------------------------


CHOOSING = ["PPO discrete", "PPO multi_discrete", "PPO multi_binary", "PPO dict", *DISCRETE_ONLY]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        pytest.param(name, rows, marks=[pytest.mark.slow] * ((i + k) % 2))
        for i, name in enumerate(CHOOSING)
        for k, rows in enumerate((6, 1))
    ],
)
def test_arrays_choose_as_torch_does(name: str, rows: int) -> None:
    if name.startswith("PPO"):
        model = polyak.PPO("MlpPolicy", vector(name.split()[1]), **ROLLOUTS, batch_size=32)
    else:
        algo, options = DISCRETE_ONLY[name]
        model = getattr(polyak, algo)("MlpPolicy", vector(), **options)
    policy, acting = model.policy, Numpy(model.policy)
    policy.set_training_mode(False)
    sizes = Forbidding(model.action_space)._sizes()
    for seed in range(20):
        masks = random_masks(sizes, rows).numpy()
        obs = np.random.default_rng(seed).random((rows, masks.shape[1])).astype(np.float32)
        for deterministic in (True, False):
            torch.manual_seed(seed)
            quick = acting(obs, deterministic, masks)[0]
            torch.manual_seed(seed)
            with torch.no_grad():
                noise = None if deterministic else policy.draw_noise(rows)
                slow = policy.decide(torch.from_numpy(obs), noise, None, torch.from_numpy(masks)).actions
            assert acting.reason is None
            np.testing.assert_allclose(quick, slow.numpy(), rtol=0, atol=bound())
