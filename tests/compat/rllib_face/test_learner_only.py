"""Modules that only the learner has: their data, losses, optimizers, settings and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyak.algorithms.dqn import DQNLearner
from polyak.algorithms.ppo import PPOLearner
from polyak.compat.rllib_face import (
    AlgorithmConfig,
    Columns,
    ConnectorV2,
    DQNConfig,
    DQNTorchLearner,
    MultiRLModuleSpec,
    PPOConfig,
    PPOTorchLearner,
    PPOTorchRLModule,
    RLModule,
    RLModuleSpec,
    SACConfig,
    TorchRLModule,
)
from polyak.compat.rllib_face.connectors.batches import (
    AddNextObservationsFromEpisodesToTrainBatch,
    AddObservationsFromEpisodesToBatch,
    NumpyToTensor,
)
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn.errors import PolicyError

ONCE = pytest.mark.filterwarnings("ignore:.* runs as it is written", "ignore:a rollout has n_steps")
pytestmark = ONCE
MODEL = "_model"


class Ahead(TorchRLModule):
    """Says what follows an observation, whatever is done."""

    def setup(self) -> None:
        self.layer = nn.Linear(4, 4)

    def _forward_train(self, batch: Any, **kwargs: Any) -> Any:
        return {"error": (self.layer(batch[Columns.OBS]) - batch[Columns.NEXT_OBS]).square().mean(-1)}

    def _forward(self, batch: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class OfItsOwn(Ahead):
    def compute_self_supervised_loss(self, *, fwd_out: Any, **known: Any) -> Tensor:
        loss: Tensor = fwd_out["error"].mean()
        return loss


class Surprised(ConnectorV2):
    """Rewards are what the model did not say, and the model's batch is the agent's."""

    def __call__(self, *, rl_module: Any, batch: Any, **kwargs: Any) -> Any:
        own = batch["default_policy"]
        with torch.no_grad():
            own[Columns.REWARDS] = 100 + rl_module[MODEL].forward_train(own)["error"]
        return {**batch, MODEL: own}


class Curious:
    def build(self) -> None:
        super().build()  # type: ignore[misc]
        pieces = self._learner_connector  # type: ignore[attr-defined]
        pieces.insert_after(AddObservationsFromEpisodesToBatch, AddNextObservationsFromEpisodesToTrainBatch())
        pieces.insert_after(NumpyToTensor, Surprised())


class OfPPO(Curious, PPOTorchLearner):
    pass


class OfDQN(Curious, DQNTorchLearner):
    pass


def specs(module_class: Any = OfItsOwn, **options: Any) -> MultiRLModuleSpec:
    beside = RLModuleSpec(module_class=module_class, learner_only=True, **options)
    return MultiRLModuleSpec({"default_policy": RLModuleSpec(), MODEL: beside})


def ppo(learner_class: Any = OfPPO, environments: int = 1, **overrides: Any) -> PPOConfig:
    config = PPOConfig().environment("CartPole-v1").env_runners(num_envs_per_env_runner=environments)
    config.training(train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1, learner_class=learner_class)
    config.rl_module(
        model_config={"fcnet_hiddens": [4]},
        rl_module_spec=specs(),
        algorithm_config_overrides_per_module={MODEL: AlgorithmConfig.overrides(lr=0.01, **overrides)},
    )
    return config.debugging(seed=0)


def dqn(learner_class: Any = OfDQN) -> DQNConfig:
    config = DQNConfig().environment("CartPole-v1").rl_module(model_config={"fcnet_hiddens": [4]})
    config.training(
        train_batch_size_per_learner=8, num_steps_sampled_before_learning_starts=10, learner_class=learner_class
    )
    config.rl_module(
        rl_module_spec=specs(), algorithm_config_overrides_per_module={MODEL: AlgorithmConfig.overrides(lr=0.01)}
    )
    return config.reporting(min_sample_timesteps_per_iteration=20).debugging(seed=0)


# -- learning ----------------------------------------------------------------------------------------------------------


def adam(weights: np.ndarray, gradients: list[np.ndarray], rate: float) -> np.ndarray:
    """Some steps of Adam (arXiv:1412.6980, algorithm 1), in double precision."""
    first, second, weights = np.zeros(weights.shape), np.zeros(weights.shape), weights.astype(np.float64)
    for step, gradient in enumerate(gradients, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        weights = weights - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return weights


@pytest.mark.parametrize("make", [ppo, dqn])
def test_the_module_makes_steps_of_its_own_optimizer(make: Any) -> None:
    """Those of Adam at its own learning rate, of the gradients of its own loss, written out by hand."""
    batches: list[tuple[np.ndarray, np.ndarray]] = []

    class Noting(OfItsOwn):
        def compute_self_supervised_loss(self, *, batch: Any, **known: Any) -> Tensor:
            batches.append((batch[Columns.OBS].numpy().copy(), batch[Columns.NEXT_OBS].numpy().copy()))
            return super().compute_self_supervised_loss(batch=batch, **known)

    with make().rl_module(rl_module_spec=specs(Noting)).build() as algo:
        before = algo.get_weights([MODEL])[MODEL]
        algo.train()
        after = algo.get_weights()[MODEL]
    weight, bias = (before[f"layer.{name}"].astype(np.float64) for name in ("weight", "bias"))
    found: list[tuple[np.ndarray, np.ndarray]] = []
    start = weight, bias
    assert len(batches) > 1
    for observations, then in batches:
        error = 2 * (observations @ weight.T + bias - then) / then.size
        found.append((error.T @ observations, error.sum(0)))
        weight, bias = (adam(start[i], [one[i] for one in found], 0.01) for i in range(2))
    # a step of Adam is 0.01 at most; float32 and double differ by some 1e-6 of it, where gradients do not vanish
    np.testing.assert_allclose(after["layer.weight"], weight, atol=2e-5)
    np.testing.assert_allclose(after["layer.bias"], bias, atol=2e-5)


def test_gradients_are_limited_by_each_modules_own_setting() -> None:
    norms: dict[str, list[float]] = {}

    class Limited(OfPPO):
        def postprocess_gradients_for_module(self, *, module_id: str, **known: Any) -> Any:
            found = super().postprocess_gradients_for_module(module_id=module_id, **known)
            norms.setdefault(module_id, []).append(float(torch.cat([one.flatten() for one in found.values()]).norm()))
            return found

    with ppo(Limited, grad_clip=1e-3).build() as algo:
        algo.train()
    assert norms[MODEL] == pytest.approx([1e-3] * len(norms[MODEL]), rel=1e-3)
    assert len(norms[MODEL]) > 1
    assert min(norms["default_policy"]) > 0.1


@pytest.mark.parametrize("environments", [1, 2])
def test_columns_of_pieces_are_those_of_the_rows_of_a_minibatch(environments: int) -> None:
    """Of the agent and of the module, in every minibatch; and rewards are what returns are made of."""
    rows = []

    class Numbered(ConnectorV2):
        def __call__(self, *, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            own = batch["default_policy"]
            assert int(own[Columns.LOSS_MASK].sum()) == 32
            own["sum"] = own[Columns.OBS].sum(-1)
            own[Columns.REWARDS] += 5
            return {**batch, MODEL: {Columns.OBS: own[Columns.OBS] + 1, Columns.NEXT_OBS: own[Columns.NEXT_OBS]}}

    class Own(PPOTorchLearner):
        def build(self) -> None:
            super().build()
            self._learner_connector.insert_after(
                AddObservationsFromEpisodesToBatch, AddNextObservationsFromEpisodesToTrainBatch()
            )
            self._learner_connector.insert_after("NumpyToTensor", Numbered())

        def compute_losses(self, *, fwd_out: Any, batch: Any) -> Any:
            own, others = batch["default_policy"], batch[MODEL]
            torch.testing.assert_close(own["sum"], own[Columns.OBS].sum(-1))
            torch.testing.assert_close(others[Columns.OBS], own[Columns.OBS] + 1)
            assert sorted(others) == ["new_obs", "obs"]
            assert (own[Columns.REWARDS] == 6)[own[Columns.LOSS_MASK]].all()
            rows.append(len(own["sum"]))
            return super().compute_losses(fwd_out=fwd_out, batch=batch)

    with ppo(Own, environments).training(lambda_=0.0, gamma=0.0).build() as algo:
        algo.train()
        buffer = algo.model.rollout_buffer
        np.testing.assert_array_equal(buffer.rewards, np.full_like(buffer.rewards, 6))
        np.testing.assert_allclose(buffer.returns, 6, atol=1e-5)
    assert set(rows) == {16}


def test_replayed_rewards_are_those_of_the_pieces() -> None:
    seen = []

    class Own(OfDQN):
        def compute_loss_for_module(self, *, batch: Any, **known: Any) -> Any:
            seen.append((batch[Columns.REWARDS], self.module[MODEL].forward_train(batch)["error"]))
            assert batch["weights"].shape == batch[Columns.REWARDS].shape == batch["discounts"].shape
            return super().compute_loss_for_module(batch=batch, **known)

    with dqn(Own).build() as algo:
        algo.train()
        kept = algo.model.replay_buffer.rewards[:20]
    assert np.isin(kept, [0, 1]).all()  # what is replayed again gets what the model says then
    for rewards, errors in seen:
        torch.testing.assert_close(rewards, 100 + errors)


def test_a_module_without_a_batch_is_named() -> None:
    with ppo(PPOTorchLearner).build() as algo:
        before = algo.get_weights()[MODEL]
        with pytest.warns(UserWarning, match="no piece of the learner gives the module '_model' a batch"):
            algo.train()
        for name, value in algo.get_weights()[MODEL].items():
            np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("make", [ppo, dqn])
def test_a_module_without_a_loss_is_named(make: Any) -> None:
    config = make().rl_module(rl_module_spec=specs(Ahead))
    with config.build() as algo, pytest.raises(PolicyError, match="Write the loss of '_model'"):
        algo.train()


def test_the_agents_module_may_have_a_loss_of_its_own() -> None:
    calls = []

    class Pushed(PPOTorchRLModule):
        def compute_self_supervised_loss(self, *, learner: Any, module_id: str, config: Any, **known: Any) -> Tensor:
            calls.append(module_id)
            return learner.compute_loss_for_module(module_id=module_id, config=config, **known)

    config = ppo(None).rl_module(rl_module_spec=RLModuleSpec(module_class=Pushed))
    config.algorithm_config_overrides_per_module.clear()
    with config.build() as algo:
        algo.train()
    assert set(calls) == {"default_policy"}


# -- settings ----------------------------------------------------------------------------------------------------------


def test_each_module_has_its_settings() -> None:
    config = ppo(gamma=0.5, learner_config_dict={"weight": 3})
    config.rl_module(algorithm_config_overrides_per_module={"default_policy": PPOConfig.overrides(clip_param=0.1)})
    own, others = config.get_config_for_module(MODEL), config.get_config_for_module("default_policy")
    assert (own.lr, own.gamma, own.learner_config_dict, own.clip_param) == (0.01, 0.5, {"weight": 3}, 0.3)
    assert (others.lr, others.gamma, others.clip_param) == (5e-5, 0.99, 0.1)
    assert config.get_config_for_module("another") is config
    config.training(vf_loss_coeff=0.25)
    again = config.get_config_for_module("default_policy").get_config_for_module(MODEL)
    assert (again.vf_loss_coeff, again.clip_param) == (0.25, 0.3)
    with config.build() as algo:
        learner = algo.learner_group._learner
        assert learner.config.clip_param == 0.3
        assert float(learner.clip_range) == pytest.approx(0.1)
        assert learner.get_optimizer(MODEL).param_groups[0]["lr"] == 0.01
        assert learner.get_optimizer().param_groups[0]["lr"] == 5e-5
        assert algo.config.get_config_for_module(MODEL).is_frozen
        result = algo.train()["learners"][MODEL]
        assert result["default_optimizer_learning_rate"] == pytest.approx(0.01)
        assert result["num_trainable_parameters"] == 20
        assert result["total_loss"] > 0


def test_schedules_of_a_modules_learning_rate_are_followed() -> None:
    config = ppo().rl_module(algorithm_config_overrides_per_module={MODEL: {"lr": [[0, 0.01], [32, 0.02]]}})
    with config.build() as algo:
        algo.train()
        assert algo.learner_group._learner.get_optimizer(MODEL).param_groups[0]["lr"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({MODEL: {"num_epochs": 3}}, HyperparameterError, r"\['_model'\]\['num_epochs'\].*may have its own gamma, lr"),
        ({MODEL: {"env": "CartPole-v1"}}, HyperparameterError, r"\['env'\]"),
        ({MODEL: {"lr": -1.0}}, HyperparameterError, "lr"),
        ({MODEL: {"learning_rate": 1.0}}, TypeError, "learning_rate"),
        ({MODEL: 3}, HyperparameterError, r"overrides\(...\)"),
        ({"_modle": {"lr": 1.0}}, HyperparameterError, r"the modules are \['default_policy', '_model'\]"),
    ],
)
def test_settings_that_a_module_cannot_have_are_named(settings: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        ppo().rl_module(algorithm_config_overrides_per_module=settings).validate()


@pytest.mark.slow
def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(HyperparameterError, match=r"\['other'\] would act, too.*learner_only=True"):
        PPOConfig().rl_module(rl_module_spec=MultiRLModuleSpec({**specs().named(), "other": RLModuleSpec()}))
    with pytest.raises(HyperparameterError, match="trains one agent, 'default_policy'"):
        PPOConfig().rl_module(rl_module_spec=MultiRLModuleSpec({MODEL: RLModuleSpec(learner_only=True)}))
    with pytest.raises(HyperparameterError, match="SAC trains no modules that only the learner has"):
        SACConfig().rl_module(rl_module_spec=specs())
    with pytest.raises(HyperparameterError, match="num_learners=0"):
        ppo().learners(num_learners=1).validate()
    with pytest.raises(HyperparameterError, match="without slashes and dots"):
        beside = RLModuleSpec(module_class=Ahead, learner_only=True)
        PPOConfig().rl_module(rl_module_spec=MultiRLModuleSpec({"default_policy": RLModuleSpec(), "a.b": beside}))
    with pytest.raises(HyperparameterError, match="num_atoms"):
        dqn().training(num_atoms=5).validate()
    memory = {"use_lstm": True, "max_seq_len": 4}
    for make in (ppo, dqn):
        with pytest.raises(HyperparameterError, match="use_lstm"):
            make().rl_module(model_config=memory).build()
    only_pieces = dqn().rl_module(rl_module_spec=RLModuleSpec()).training(num_atoms=5)
    only_pieces.algorithm_config_overrides_per_module.clear()
    with pytest.raises(HyperparameterError, match="a learner behind Surprised reads neither"):
        only_pieces.build()
    with pytest.raises(HyperparameterError, match="num_env_runners=0"):
        ppo().env_runners(num_env_runners=1).build()
    with pytest.raises(HyperparameterError, match="give a subclass of PPOTorchLearner"):
        ppo(PPOLearner).validate()
    with pytest.raises(HyperparameterError, match="give a subclass of DQNTorchLearner"):
        DQNConfig().training(learner_class=DQNLearner, learner_connector=lambda *_: Surprised()).validate()


@pytest.mark.parametrize("learner_class", [None, PPOLearner])
def test_rewards_of_pieces_that_a_config_adds_are_learned_from(learner_class: Any) -> None:

    class Doubled(ConnectorV2):
        def __call__(self, *, batch: Any, **kwargs: Any) -> Any:
            batch["default_policy"][Columns.REWARDS] *= 2
            return batch

    class Own(PPOConfig):
        def build_learner_connector(self, *args: Any, **kwargs: Any) -> Any:
            pieces = super().build_learner_connector(*args, **kwargs)
            pieces.append(Doubled())
            return pieces

    config = Own().environment("CartPole-v1").debugging(seed=0)
    config.training(train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1, learner_class=learner_class)
    with config.build() as algo:
        algo.train()
        assert isinstance(algo.learner_group._learner, PPOTorchLearner)
        np.testing.assert_array_equal(algo.model.rollout_buffer.rewards, 2)


def changing(change: Any) -> Any:
    class Own(PPOTorchLearner):
        def build(self) -> None:
            super().build()
            change(self._learner_connector)

    return Own


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pieces: pieces.append(Surprised()), r"insert_before\(GeneralAdvantageEstimation, piece\)"),
        (lambda pieces: pieces.remove(NumpyToTensor), "let NumpyToTensor stand there once"),
        (lambda pieces: pieces.prepend(NumpyToTensor()), "let NumpyToTensor stand there once"),
        (lambda pieces: pieces.insert_after("NoPiece", Surprised()), "the pieces are .*'BatchIndividualItems'"),
    ],
)
def test_pieces_where_they_would_do_nothing_are_refused(change: Any, words: str) -> None:
    with pytest.raises(HyperparameterError, match=words):
        ppo(changing(change)).build()


def test_pieces_of_others_are_named() -> None:
    class Unknown(Surprised):
        def __call__(self, *, batch: Any, **kwargs: Any) -> Any:
            return {**batch, "_other": batch["default_policy"]}

    learner = changing(lambda pieces: pieces.insert_after(NumpyToTensor, Unknown()))
    with ppo(learner).build() as algo:
        with pytest.raises(HyperparameterError, match=r"'_other'.*modules are \['default_policy', '_model'\]"):
            algo.train()
        with pytest.raises(HyperparameterError, match="the algorithm has been built"):
            algo.learner_group._learner._learner_connector.append(Surprised())
    with pytest.raises(HyperparameterError, match="polyak does its work before a module"):
        PPOConfig().environment("CartPole-v1").env_runners(
            env_to_module_connector=lambda env, spaces, device: NumpyToTensor()
        ).build()


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ppo, dqn])
def test_the_module_is_in_checkpoints_and_states(make: Any, tmp_path: Path) -> None:
    """Weights and the optimizer's moments, bit by bit; and alone, for programs that read modules."""
    with make().build() as algo:
        algo.train()
        saved, state = algo.save_to_path(tmp_path), algo.get_state()
        weights = algo.get_weights()
        moments = algo.learner_group._learner.get_optimizer(MODEL).state_dict()["state"]
        assert sorted(state["learner_group"]["learner"]["rl_module"]) == [MODEL, "default_policy"]
        assert not any(name.startswith("beside") for name in state["learner_group"]["learner"]["learning"]["networks"])
        path = f"learner_group/learner/rl_module/{MODEL}"
        assert list(algo.get_state(path)["learner_group"]["learner"]["rl_module"]) == [MODEL]
        assert list(algo.get_state(not_components=path)["learner_group"]["learner"]["rl_module"]) == ["default_policy"]
        with pytest.raises(KeyError, match=r"learner_group._learner.module\['_model'\]"):
            algo.get_module(MODEL)
    alone = RLModule.from_checkpoint(Path(saved) / "learner_group" / "learner" / "rl_module")
    assert sorted(alone) == [MODEL, "default_policy"]
    for restore in (
        lambda one: one.restore_from_path(saved),
        lambda one: one.set_state(state),
        lambda one: one.restore_from_path(saved, "learner_group/learner/rl_module"),
        lambda one: one.set_weights(weights),
    ):
        with make().debugging(seed=5).build() as other:
            assert not np.array_equal(other.get_weights()[MODEL]["layer.bias"], weights[MODEL]["layer.bias"])
            restore(other)
            for name, value in weights[MODEL].items():
                np.testing.assert_array_equal(other.get_weights()[MODEL][name], value)
                np.testing.assert_array_equal(alone[MODEL].get_state()[name], value)
            kept = other.learner_group._learner.get_optimizer(MODEL).state_dict()["state"]
            if kept:
                torch.testing.assert_close(kept, moments, rtol=0, atol=0)
                other.train()
    with pytest.raises(ValueError, match=r"rl_module_spec|learner_class"):
        type(algo).from_checkpoint(saved)
    with type(algo).from_checkpoint(saved, make()) as again:
        np.testing.assert_array_equal(again.get_weights()[MODEL]["layer.bias"], weights[MODEL]["layer.bias"])


def test_the_module_begins_with_the_weights_of_a_folder(tmp_path: Path) -> None:
    with ppo().build() as algo:
        weights = algo.get_weights()
        folder = algo.learner_group._learner.module.save_to_path(tmp_path)
    for given in (specs(load_state_path=Path(folder) / MODEL), specs()):
        if given.named()[MODEL].load_state_path is None:
            given.load_state_path = folder
        with ppo().debugging(seed=5).rl_module(rl_module_spec=given).build() as algo:
            np.testing.assert_array_equal(algo.get_weights()[MODEL]["layer.bias"], weights[MODEL]["layer.bias"])
    with ppo().debugging(seed=5).build() as algo, pytest.raises(ValueError, match="'_model'.*not its own"):
        algo.set_weights({MODEL: weights["default_policy"]})
