"""Clipper: batches that find their own size, workers that die in view, and predictions that are remembered.

What it does stands in `examples.clipper.demonstration`, imported below only where this file is the program.
"""

if __name__ == "__main__":
    from examples.clipper.demonstration import main
    from spillway.agents.cli.main import end

    end(main())
