"""Action distributions as values, the families that make them, and the choice of a family by action space."""
