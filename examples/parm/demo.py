"""ParM: workers stall at random, and a parity model answers for them, beside as many more workers of the model.

What it does stands in `examples.parm.demonstration`, imported below only where this file is the program.
"""

if __name__ == "__main__":
    from examples.parm.demonstration import main
    from spillway.agents.cli.main import end

    end(main())
