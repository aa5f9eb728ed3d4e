"""The gateway: a pipeline's front door for any client, by HTTP and gRPC."""
