"""Sphinx: the documentation. Built with warnings as errors, so that no reference leads nowhere."""

from importlib.metadata import version as version_of

project = "dramatiq-distcron"
author = "The dramatiq-distcron developers"
release = version = version_of(project)

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"

# In signatures: the names of Dramatiq and the standard library, and those that are explained where they are used.
nitpick_ignore_regex = [
    ("py:class", r"BaseTrigger|dramatiq_distcron\.timings\.Timing"),
    ("py:class", r"(collections\.abc|datetime|dramatiq\.(brokers|message)|tuple)\b.*"),
    ("py:class", r"Actor|Broker|Message|P|R"),
    # Of dead letters.
    ("py:class", r"EllipsisType|Redact|LetterKeeper|dict\[str|dramatiq_distcron\.api\.dead_letters\.[A-Z]"),
    ("py:class", r"Jitter|_When|Callable\[.*|timedelta|random\.Random"),
    (
        "py:class",
        r"Backend|CatchUp|Overlap|Settings|DistCronOptions|Duration|ScheduleOptions|dramatiq_distcron\.schedules\.Timing",
    ),
]

html_theme = "furo"
html_title = f"{project} {release}"
