"""Pipelines with autoregressive stages in virtual time, iteration by iteration."""
