"""The messages of the Open Inference Protocol (v2) over gRPC; `inference_pb2` is made by `make protocol`."""
