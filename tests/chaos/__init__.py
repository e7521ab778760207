"""Proof by chaos: real beats and workers under kills, sleeps and bad networks, and checkers of what came of it.

    python -m tests.chaos --seconds 60 --seed 1

A run leaves a history: what was asked for, what was decided, what the workers saw, what lies in the queues. The
checkers are pure functions of it, so that they are tested with doctored histories.
"""
