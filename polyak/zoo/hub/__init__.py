"""Sharing agents on the Hugging Face Hub: ``polyak push-to-hub`` and ``polyak load-from-hub``."""
