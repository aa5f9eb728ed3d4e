"""Spillway's agents: what runs.

The pure cores, their drivers (Faust and the simulator), the broker, the supervisor, the command line.
"""
