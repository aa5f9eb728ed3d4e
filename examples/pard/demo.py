"""PARD: overload a pipeline of four real models under three drop policies, and compare what is answered in time.

What it does stands in `examples.plates.demonstration`. It is imported below because the processes that measure the
models import this file again, and need none of it.
"""

if __name__ == "__main__":
    from examples.plates.demonstration import main
    from spillway.agents.cli.main import end

    end(main())
