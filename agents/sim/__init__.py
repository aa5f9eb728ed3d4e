"""The simulator driver: the core in virtual time, with profiled durations. `simulation.simulate` is the way in."""
