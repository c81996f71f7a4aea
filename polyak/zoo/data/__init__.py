"""``polyak data``: recorded experience as files."""
