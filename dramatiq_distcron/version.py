"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["VERSION"]

try:
    VERSION = version("dramatiq-distcron")
except PackageNotFoundError:  # run from a checkout
    VERSION = "0+unknown"
