"""Velox: a radio learns a new listener at once; its songs' features drift, are retrained, and are switched to.

What it does stands in `examples.velox.demonstration`, imported below only where this file is the program.
"""

if __name__ == "__main__":
    from examples.velox.demonstration import main
    from spillway.agents.cli.main import end

    end(main())
