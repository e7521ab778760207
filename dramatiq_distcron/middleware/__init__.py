"""The middlewares, one a module."""
