"""The command line: tuned settings, training runs, their files and images."""
