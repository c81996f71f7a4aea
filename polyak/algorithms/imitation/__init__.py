"""Parts of imitation learning: adversarial training and learned rewards."""
