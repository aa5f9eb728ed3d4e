"""A stage of a plan, as far as a tuner asks."""

from spillway.topology.capacity.plan import PlannedStage


def planned(count, throughput, share=1.0, hardware="", load=0.0):
    return PlannedStage.model_construct(count=count, throughput=throughput, share=share, hardware=hardware, load=load)
