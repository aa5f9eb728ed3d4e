"""Routes: which lanes of a stage a query joins, and what makes its answer (`spillway.agents.core.lanes`)."""
