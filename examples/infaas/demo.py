"""INFaaS: queries say what they need; as the load rises tenfold, the stage changes variants and their workers.

What it does stands in `examples.infaas.demonstration`, imported below only where this file is the program.
"""

if __name__ == "__main__":
    from examples.infaas.demonstration import main
    from spillway.agents.cli.main import end

    end(main())
