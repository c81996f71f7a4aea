"""sb3-contrib's RecurrentPPO under its own names: numbers like its own, and what its programs count on."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.algorithms.recurrent_ppo import RecurrentPPO as OwnRecurrentPPO
from polyak.callbacks.callback import BaseCallback
from polyak.compat.sb3_face.algorithms import RecurrentPPO
from polyak.compat.sb3_face.recurrent import buffers, options, policies, type_aliases
from polyak.envs import DummyVecEnv, SimpleMultiObsEnv
from polyak.experience import RolloutBuffer
from tests.compat.make_recurrent import DATA, everything

EXPECTED = dict(np.load(DATA / "recurrent.npz"))
TINY = {"net_arch": [4], "lstm_hidden_size": 4}


def model(env: Any = "CartPole-v1", policy: Any = "MlpLstmPolicy", **more: Any) -> RecurrentPPO:
    given = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "seed": 0, "device": "cpu", "policy_kwargs": TINY} | more
    return RecurrentPPO(policy, env, **given)


def test_numbers_are_the_peers() -> None:
    """Padded rollouts and the weights of LSTMs to the last bit; what is computed within rounding: sums of at most 20
    products of numbers of order 1 in float32, three one after another, or an orthogonal matrix of such sums."""
    found = everything(policies, buffers, type_aliases)
    assert found.keys() == EXPECTED.keys()
    for name, array in found.items():
        assert (array.shape, array.dtype) == (EXPECTED[name].shape, EXPECTED[name].dtype), name
        estimated = name.endswith(("/advantages", "/returns"))
        drawn = "/weight/lstm" in name
        if not estimated and (drawn or name.startswith(("cut", "rollout"))):
            np.testing.assert_array_equal(array, EXPECTED[name], err_msg=name)
        else:
            np.testing.assert_allclose(array, EXPECTED[name], rtol=0, atol=60 * 2**-23 * 4, err_msg=name)


def test_its_own_sequences_and_padded_ones_give_the_same_losses() -> None:
    """Two readings of one rollout: what learners see through ``minibatches`` and what programs see through ``get``."""
    made = model(DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2), n_steps=32, batch_size=64)
    made.learn(64)
    buffer, policy = made.rollout_buffer, made.policy
    rows = next(buffer.minibatches(None)).gathered()
    values, log_prob, entropy = policy.evaluate_actions(rows.observations, rows.actions, **rows.extras)
    padded = next(buffer.get(None))
    kept = padded.mask > 0
    assert kept.sum() == 64
    own = policy.evaluate_actions(padded.observations, padded.actions, padded.lstm_states, padded.episode_starts)
    for mine, theirs in zip((values.flatten(), log_prob, entropy), own, strict=True):
        theirs = theirs.flatten()[kept]
        torch.testing.assert_close(mine.sort()[0], theirs.sort()[0], rtol=0, atol=1e-6)


def test_a_program_that_steps_and_trains_by_itself() -> None:
    """The peer's loops, written out by means of what its classes offer."""
    made = model(n_steps=8)
    policy, buffer = made.policy, made.rollout_buffer
    assert isinstance(buffer, buffers.RecurrentRolloutBuffer)
    env, (layers, _, units) = made.get_env(), policy.lstm_hidden_state_shape
    obs, starts = env.reset(), np.ones(1, bool)
    states = type_aliases.RNNStates(*((torch.zeros(layers, 1, units),) * 2 for _ in range(2)))
    buffer.reset()
    while not buffer.full:
        with torch.no_grad():
            seen = policy.obs_to_tensor(obs)[0]
            actions, values, log_probs, after = policy.forward(seen, states, torch.tensor(starts).float())
        new_obs, rewards, dones, _ = env.step(actions.numpy())
        buffer.add(obs, actions.numpy()[:, None], rewards, starts, values, log_probs, lstm_states=states)
        obs, starts, states = new_obs, dones, after
    buffer.compute_returns_and_advantage(values, dones)
    before = [parameter.clone() for parameter in policy.parameters()]
    for batch in buffer.get(4):
        values, log_prob, _ = policy.evaluate_actions(
            batch.observations, batch.actions.long().flatten(), batch.lstm_states, batch.episode_starts
        )
        mask = batch.mask > 0
        torch.testing.assert_close(log_prob[mask], batch.old_log_prob[mask], rtol=0, atol=1e-6)
        loss = -(batch.advantages * log_prob)[mask].mean() + (values.flatten() - batch.returns)[mask].square().mean()
        policy.optimizer.zero_grad()
        loss.backward()
    policy.optimizer.step()
    assert all((old != new).any() for old, new in zip(before, policy.parameters(), strict=True))


@pytest.mark.parametrize(
    "memory", [{}, {"shared_lstm": True, "enable_critic_lstm": False}, {"enable_critic_lstm": False}]
)
def test_callbacks_find_memory_in_the_rollout(memory: dict[str, Any]) -> None:
    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.model.rollout_buffer
            for name in ("hidden_states_pi", "cell_states_pi", "hidden_states_vf", "cell_states_vf"):
                states = getattr(buffer, name)
                assert states.shape == (16, 1, 1, 4)
                assert states.any()
                assert not states[buffer.episode_starts > 0].any()
            last = self.model._last_lstm_states
            assert [state.shape for part in last for state in part] == [(1, 1, 4)] * 4

    model(policy_kwargs=TINY | memory).learn(32, Watch())


def test_policies_by_name() -> None:
    assert set(RecurrentPPO.policy_aliases) == {"MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy"}
    made = model(SimpleMultiObsEnv(random_start=False), "MultiInputLstmPolicy")
    assert isinstance(made.rollout_buffer, buffers.RecurrentDictRolloutBuffer)
    made.learn(16)
    with pytest.raises(ValueError, match="Use 'MultiInputLstmPolicy'"):
        model(SimpleMultiObsEnv(), "CnnLstmPolicy")
    with pytest.raises(ValueError, match="Use 'MlpLstmPolicy'"):
        model("CartPole-v1", "CnnLstmPolicy")


@pytest.mark.parametrize("n_steps", [17, 16, 12])
def test_any_number_of_steps_will_do(n_steps: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = model(n_steps=n_steps)
        made.learn(n_steps)
    assert any("has no factor of about batch_size=8" in str(w.message) for w in caught) == (n_steps == 17)
    assert made.rollout_buffer.sequence_length == {17: 17, 16: 8, 12: 6}[n_steps]


@pytest.mark.parametrize(("name", "value"), [("bias", False), ("proj_size", 2), ("nonsense", 1)])
def test_other_lstms_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"lstm_kwargs: {name}={value} is not supported"):
        model(policy_kwargs=TINY | {"n_lstm_layers": 2, "lstm_kwargs": {name: value}})


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(AssertionError, match="Set one of them to False"):
        model(policy_kwargs=TINY | {"shared_lstm": True})
    with pytest.raises(AssertionError, match="Leave one of them out"):
        options.critic_memory(True, False, share_features_extractor=False)
    with pytest.warns(UserWarning, match="no effect with n_lstm_layers=1"):
        model(policy_kwargs=TINY | {"lstm_kwargs": {"dropout": 0.5}})


def test_layers_lose_some_of_what_they_hand_on() -> None:
    made = model(policy_kwargs=TINY | {"n_lstm_layers": 2, "lstm_kwargs": {"dropout": 0.5}})
    made.learn(32)
    assert made.policy.lstm_actor.dropout == 0.5
    kept = options.to_polyak(made.policy_kwargs)
    assert kept["memory_dropout"] == 0.5
    assert options.to_contrib(kept)["lstm_kwargs"] == {"dropout": 0.5}


@pytest.mark.parametrize("word", ["own", "shared", "none"])
def test_words_are_translated_both_ways(word: str) -> None:
    ours = {"memory_size": 3, "memory_layers": 2, "critic_memory": word, "net_arch": [4]}
    assert options.to_polyak(options.to_contrib(ours)) == ours
    with pytest.raises(ValueError, match="whose memory is an LSTM"):
        options.to_contrib(ours | {"memory": "gru"})


def test_seeded_models_here_and_there_learn_the_same() -> None:
    """But for rounding, which may depend on where arrays lie: far less than the 3e-4 by which a step moves a weight."""
    given = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "seed": 0, "device": "cpu"}
    compat = model(**given).learn(16)
    own = OwnRecurrentPPO("MlpLstmPolicy", "CartPole-v1", **given, policy_kwargs={"net_arch": [4], "memory_size": 4})
    own.learn(16)
    np.testing.assert_array_equal(compat.rollout_buffer.actions, own.rollout_buffer.actions)
    for mine, theirs in zip(compat.policy.parameters(), own.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


def test_a_policy_by_itself_is_saved(tmp_path: Any) -> None:
    policy = model(policy_kwargs=TINY | {"n_lstm_layers": 2}).policy
    policy.save(tmp_path / "policy")
    again = policies.RecurrentActorCriticPolicy.load(tmp_path / "policy", device="cpu")
    for mine, theirs in zip(policy.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_rollout_needs_memory() -> None:
    buffer = buffers.RecurrentRolloutBuffer(4, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), (4, 1, 1, 2), "cpu")
    assert isinstance(buffer, RolloutBuffer)
    with pytest.raises(ValueError, match="actor_hidden"):
        buffer.add(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1), np.ones(1), torch.zeros(1), torch.zeros(1))
    with pytest.raises(AssertionError, match="fill it before reading it"):
        next(buffer.get())
