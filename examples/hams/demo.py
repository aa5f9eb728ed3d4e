"""HAMS: kill the primary of a stage that learns while it is under load, and show the gap and that nothing was lost.

What it does stands in `examples.stateful.failover`, imported below only where this file is the program.
"""

if __name__ == "__main__":
    from examples.stateful.failover import main
    from spillway.agents.cli.main import end

    end(main())
