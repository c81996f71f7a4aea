"""The three shapes of policy: a value function, an actor with critics, a stochastic actor with a value function."""
