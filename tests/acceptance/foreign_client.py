"""Asks a gateway by Triton's own client, which is installed apart: it wants an older protobuf."""

import json
import sys

import numpy as np
import tritonclient.grpc
import tritonclient.http

http, calls, model = sys.argv[1:]
told = {}
for kind, module, address in (("http", tritonclient.http, http), ("grpc", tritonclient.grpc, calls)):
    client = module.InferenceServerClient(address)
    name, x = module.InferInput("name", [1], "BYTES"), module.InferInput("x", [3], "FP32")
    name.set_data_from_numpy(np.array([b"Ada"], dtype=object))
    x.set_data_from_numpy(np.array([1, 2, 3], np.float32))
    answer = client.infer(model, [name, x], request_id="1", outputs=[module.InferRequestedOutput("said")])
    doubled = client.infer(model, [name, x])
    refused = []
    for ask in (lambda c: c.infer("nobody", []), lambda c: c.get_inference_statistics(model)):
        try:
            ask(client)
        except tritonclient.utils.InferenceServerException as error:
            refused.append(error.status())
    told[kind] = {
        "live": client.is_server_live() and client.is_server_ready() and client.is_model_ready(model),
        "said": answer.as_numpy("said")[0].decode(),
        "twice": doubled.as_numpy("twice").tolist(),
        "refused": refused,
    }
name = tritonclient.http.InferInput("name", [1], "BYTES")
name.set_data_from_numpy(np.array([b"Bob"], dtype=object), binary_data=False)
packed = {"request_compression_algorithm": "gzip", "response_compression_algorithm": "gzip"}
output = tritonclient.http.InferRequestedOutput("said", binary_data=False)
answer = tritonclient.http.InferenceServerClient(http).infer(model, [name], outputs=[output], **packed)
told["json"] = str(answer.as_numpy("said")[0])
print(json.dumps(told))
