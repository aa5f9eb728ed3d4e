"""One machine's pipeline under one supervisor: processes, restarts, watchdog, run directory, live status."""
