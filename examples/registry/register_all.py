"""Register the zoo's four architectures for both tasks: `python -m examples.registry.register_all`.

Takes some minutes: each variant has a process of its own, in which it is measured. Give --bootstrap HOST:PORT, or
SPILLWAY_BOOTSTRAP, as to any other command; what else is given goes to `spillway models register`, as --threads 1,2.
"""

from __future__ import annotations

import sys

from examples.registry.zoo import ARCHITECTURES, TASKS

_MODELS = {"digits": "digit", "even": "even"}  # how the zoo calls the models of a task


def main() -> int:
    from spillway.agents.cli.main import run  # noqa: PLC0415 - where this is the program

    for task in TASKS:
        for architecture in ARCHITECTURES:
            model = f"examples.registry.zoo:{_MODELS[task]}_{architecture}"
            told = ["--app", task, "--validation", f"examples.registry.zoo:{task}", *sys.argv[1:]]
            if code := run(["models", "register", architecture, model, *told]):
                return code
    return run(["models", "list"])


if __name__ == "__main__":
    from spillway.agents.cli.main import end

    end(main())
