"""Spillway's checkpoint: what survives a crash.

Which input may be forgotten, what was already taken, what may be released.
"""
