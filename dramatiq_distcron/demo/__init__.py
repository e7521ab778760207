"""The demonstration: beats, workers and a server of their own, a kill in mid-run, and the proof."""
