"""A pipeline of real cores on an imagined Kafka, in virtual time, under crashes, zombies and rebalances.

Nothing here decides what a core decides: the processes are what the live drivers are, reduced to their order of calls.
A run is a function of its scenario and seed.
"""

from agents.sim.faults.scenario import Fault, FaultKind, Scenario
from agents.sim.faults.world import Execution, FaultRun, Tenure, World, run

__all__ = ["Execution", "Fault", "FaultKind", "FaultRun", "Scenario", "Tenure", "World", "run"]
