"""The proof of stateful serving: real cores, members and logs on an imagined Kafka, under everything that goes wrong.

A run is a function of its scenario and seed. `oracle.problems` judges it.
"""
