"""Spillway's producers: what talks to a pipeline from outside.

Client, load generator, record, replay, trace import, report.
"""

import logging

if not __name__.startswith("spillway."):
    raise ImportError(f"{__name__!r} is part of Spillway: import it as 'spillway.{__name__}'")

# What happens on the side is for whoever configures logging; nobody else is to find librdkafka's lines on stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())
