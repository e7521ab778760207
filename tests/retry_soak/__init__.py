"""Workers are killed at random while thousands of messages fail; each must end once, and no retry exist twice."""
