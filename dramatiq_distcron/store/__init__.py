"""Where state lives: the protocol in ``base``, Redis in ``redis``, a process' memory in ``memory``."""
