"""Model-based learning: an ensemble of dynamics models, its fit, planning and imagined rollouts."""
