"""ParM's coded computation, measured: `python -m benchmarks parm`."""

from benchmarks.parm.command import parm

__all__ = ["parm"]
