"""A pipeline of real cores, members and logs on an imagined Kafka, in virtual time, under everything that goes wrong.

Nothing here decides what a core decides: the processes are what the live drivers are, reduced to their order of calls.
A run is a function of its scenario and seed.
"""
