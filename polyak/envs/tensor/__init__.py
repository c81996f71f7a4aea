"""Environments whose states are tensors on a device: thousands of them step in a few kernels."""

from polyak.envs.tensor.cart_pole import TensorCartPole as TensorCartPole
from polyak.envs.tensor.pendulum import TensorPendulum as TensorPendulum
from polyak.envs.tensor.tensor_env import TensorEnv as TensorEnv

__all__ = ["TensorCartPole", "TensorEnv", "TensorPendulum"]
