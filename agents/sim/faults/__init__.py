"""A pipeline of real cores on an imagined Kafka, in virtual time, under crashes, zombies and rebalances.

Nothing here decides what a core decides: the processes are what the live drivers are, reduced to their order of calls.
A run is a function of its scenario and seed.
"""

from agents.sim.faults.history import Execution, FaultRun, Tenure
from agents.sim.faults.play import Play, run
from agents.sim.faults.scenario import Fault, FaultKind, Scenario

__all__ = ["Execution", "Fault", "FaultKind", "FaultRun", "Play", "Scenario", "Tenure", "run"]
