"""Parts of model-based learning: an ensemble that models the environment, its fit, plans and imagined steps."""
