"""Reading untrusted files: the sizes that they claim are checked before memory is allocated."""
