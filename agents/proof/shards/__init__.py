"""Pipelines with states on a modelled Kafka, in virtual time, under everything that goes wrong.

The drivers are those that ship, over ports of a run's own. A run is a function of its scenario and seed.
"""
