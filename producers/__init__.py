"""Spillway's producers: what talks to a pipeline from outside.

Client, load generator, record, replay, trace import, report.
"""

import logging

# What happens on the side is for whoever configures logging; nobody else is to find librdkafka's lines on stderr.
logging.getLogger(__name__).addHandler(logging.NullHandler())
