"""INFaaS beside static variants and beside scaling without other variants, in virtual time, on an emulated family."""

from __future__ import annotations

from benchmarks.infaas.command import infaas

__all__ = ["infaas"]
