"""Clipper's model selection: five models, one of which fails in view; truths move the weights away and back.

What it does stands in `examples.selection.demonstration`, imported below only where this file is the program.
"""

if __name__ == "__main__":
    from examples.selection.demonstration import main
    from spillway.agents.cli.main import end

    end(main())
