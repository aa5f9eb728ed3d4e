"""What runs: the pure cores, their drivers (Faust and the simulator), the broker, the supervisor, the command line."""
