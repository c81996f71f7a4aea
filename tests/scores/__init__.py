"""Checks that agents learn: small ones in seconds, published scores in minutes (marker ``learn``)."""
