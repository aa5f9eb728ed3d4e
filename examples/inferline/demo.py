"""InferLine: the cheapest plan for a sample of the traffic; then workers come and go with the load, nothing lost.

What it does stands in `examples.inferline.demonstration`, imported below only where this file is the program.
"""

if __name__ == "__main__":
    from examples.inferline.demonstration import main
    from spillway.agents.cli.main import end

    end(main())
