"""The OpenAPI 3.1 description of a gateway: the Open Inference Protocol (v2) and the plain JSON of each pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spillway.agents.gateway.bodies import MAX_ID
from spillway.agents.gateway.parameters import OFFLINE
from spillway.agents.gateway.tensors import BYTES, DTYPE_OF
from spillway.lineage.values.tensors import DTYPE_NAMES, DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spillway.agents.gateway.signature import Signature
    from spillway.topology.spec import InputSpec

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_OBJECT: Final[Schema] = {"type": "object"}
_FLAG: Final[Schema] = {"type": "boolean"}
_NUMBER: Final[Schema] = {"type": ["number", "string"], "description": "A number; NaN and the infinities are texts."}
_BYTES: Final[Schema] = {
    "type": "object",
    "properties": {"base64": {"type": "string", "contentEncoding": "base64"}},
    "required": ["base64"],
}
_BY_TYPE: Final[dict[str, Schema]] = {
    "str": _TEXT,
    "bytes": _BYTES,
    "int": {"type": "integer"},
    "float": _NUMBER,
    "list": {"type": "array"},
    "dict": _OBJECT,
}
_SCALAR: Final[Schema] = {"type": ["string", "number", "boolean"]}
_PARAMETERS: Final[Schema] = {"type": "object", "additionalProperties": _SCALAR}


def document(signatures: Sequence[Signature], version: str) -> dict[str, Any]:
    """Return the description of a gateway of these pipelines; `version` is what it says of itself."""
    paths = dict(_SERVER_PATHS)
    schemas = dict(_SCHEMAS)
    for signature in signatures:
        name = signature.pipeline
        schemas[f"{name}.inputs"] = values_schema(signature.inputs, required=True)
        schemas[f"{name}.outputs"] = values_schema(signature.outputs or {}, required=False)
        paths |= _model_paths(name) | _plain_paths(name)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Spillway", "version": version, "description": "Predictions of Spillway's pipelines."},
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def values_schema(declared: Mapping[str, InputSpec], *, required: bool) -> Schema:
    """Return the schema of named values; others may be among them."""
    schema: Schema = {"type": "object", "properties": {name: value_schema(spec) for name, spec in declared.items()}}
    return {**schema, "required": list(declared)} if required and declared else schema


def value_schema(spec: InputSpec) -> Schema:
    """Return the schema of a value in plain JSON, as docs/clients.md has it."""
    if spec.dtype is None:
        return {} if spec.shape is None else _ref("Array")
    if spec.dtype in _BY_TYPE:
        return _BY_TYPE[spec.dtype]
    if spec.dtype == "bool" and not spec.shape:
        return _FLAG
    if spec.shape == ():
        return _ref("Array")
    return {"anyOf": [_nested(spec), _ref("Array")]}


def _nested(spec: InputSpec) -> Schema:
    """Return the schema of a tensor as lists in lists; of any depth where its shape is not declared."""
    if spec.shape is None:
        return {"type": "array"}
    kind = "f" if spec.dtype not in DTYPES else DTYPES[spec.dtype].kind
    schema = {"b": _FLAG, "i": {"type": "integer"}, "u": {"type": "integer", "minimum": 0}}.get(kind, _NUMBER)
    for size in reversed(spec.shape):
        fixed = {"minItems": size, "maxItems": size} if type(size) is int else {}
        schema = {"type": "array", "items": schema, **fixed}
    return schema


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Iterable[str] = (), **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _body(schema: Schema, *others: str) -> Schema:
    content: Schema = {"application/json": {"schema": schema}}
    return {"content": content | {other: {"schema": {"type": "string"}} for other in others}}


def _operation(summary: str, answer: Schema, request: Schema | None = None, *others: str) -> Schema:
    responses: Schema = {"200": {"description": summary, **_body(answer, *others)}}
    told = _body(_ref("Error"))
    responses |= {str(code): {"description": _MEANING[code], **told} for code in sorted(_MEANING)}
    operation: Schema = {"summary": summary, "responses": responses}
    return operation if request is None else {**operation, "requestBody": {"required": True, **_body(request)}}


def _model_paths(name: str) -> Schema:
    paths: Schema = {}
    for under, given in (("", []), ("/versions/{version}", [_VERSION_PARAMETER])):
        common: Schema = {"parameters": given} if given else {}
        infer = _operation(f"Ask {name} one query.", _ref("InferenceAnswer"), _ref("InferenceRequest"))
        raw = {"application/octet-stream": {"schema": {"type": "string"}}}  # JSON, and behind it the raw data
        infer["requestBody"]["content"] |= raw
        infer["responses"]["200"]["content"] |= raw
        root = f"/v2/models/{name}{under}"
        paths[root] = {**common, "get": _operation(f"What {name} takes and returns.", _ref("ModelMetadata"))}
        ready = _operation(f"Whether the gateway takes queries of {name}.", _ref("Ready"))
        paths[f"{root}/ready"] = {**common, "get": ready}
        paths[f"{root}/infer"] = {**common, "post": infer}
    return paths


def _plain_paths(name: str) -> Schema:
    inputs, outputs = _ref(f"{name}.inputs"), _ref(f"{name}.outputs")
    query = _object(
        ["inputs"],
        inputs=inputs,
        key={"type": "string", "description": "Queries of one key stay in order and meet the same state."},
        timeout_ms={"type": "number", "exclusiveMinimum": 0, "description": "Default: the pipeline's SLO."},
        after={"type": "string", "description": "A token of feedback that the answer must rest on."},
        priority={"enum": [OFFLINE], "description": "Answered where those with a deadline leave room."},
        parameters=_OBJECT,
        id={"type": "string", "maxLength": MAX_ID, "description": "A name of the client's own, for logs."},
    )
    many = _object(["queries"], queries={"type": "array", "items": query, "minItems": 1})
    answer = _object(
        ["outputs", "request_id"],
        outputs=outputs,
        request_id=_TEXT,
        latency_ms={"type": "number"},
        late=_FLAG,
        flags=_OBJECT,
        timings=_list(_OBJECT),
        feedback={"type": "string", "description": "What feedback on this answer is to bring along."},
    )
    truth = _object(["feedback", "learner", "truth"], feedback=_TEXT, learner=_TEXT, truth={}, inputs=_OBJECT)
    of_many = _object(["feedback", "truth"], feedback=_TEXT, truth={}, inputs=_OBJECT)
    truths = _object(["learner", "truths"], learner=_TEXT, truths={**_list(of_many), "minItems": 1})
    feedback = _operation(f"Tell {name}'s learners a truth, or many.", _OBJECT, {"oneOf": [truth, truths]})
    feedback["description"] = "Of many truths, the answer has for each its id or its error, in their order."
    predict = _operation(f"Ask {name}.", answer, {"oneOf": [query, many]}, "text/event-stream")
    predict["description"] = "With `queries`, each one's answer is a server-sent event, sent when it is there."
    return {f"/v1/pipelines/{name}/predict": {"post": predict}, f"/v1/pipelines/{name}/feedback": {"post": feedback}}


_MEANING: Final = {
    400: "The request is not as it must be; the text says what to change.",
    401: "A token is needed.",
    403: "The Host header names another host.",
    404: "There is no such pipeline, version or path.",
    415: "The body is of another content type.",
    413: "Over one of the pipeline's limits.",
    429: "Too much is under way; ask again later.",
    500: "The pipeline failed.",
    503: "The pipeline cannot answer now; ask again later.",
    504: "Not answered in time; a late prediction is in the body.",
}
_VERSION_PARAMETER: Final[Schema] = {"name": "version", "in": "path", "required": True, "schema": _TEXT}
_DATATYPE: Final[Schema] = {"type": "string", "enum": [*DTYPE_OF, BYTES]}
_SHAPE: Final = _list({"type": "integer"})
_OF_TENSOR: Final[Schema] = {"name": _TEXT, "datatype": _DATATYPE, "shape": _SHAPE, "parameters": _OBJECT}
_REQUIRED: Final = ("name", "datatype", "shape")
_DATA: Final[Schema] = {"description": "Its elements, flat or nested as the shape says."}
_TENSORS: Final = _list(_ref("Tensor"))
_METADATA: Final = _list(_object(_REQUIRED, **_OF_TENSOR))
_REQUESTED: Final = _list(_object(["name"], name=_TEXT, parameters=_OBJECT))
_SCHEMAS: Final[dict[str, Schema]] = {
    "Error": _object(["error"], error=_TEXT),
    "Live": _object(live=_FLAG),
    "Ready": _object(ready=_FLAG),
    "Server": _object(["name", "version", "extensions"], name=_TEXT, version=_TEXT, extensions=_list(_TEXT)),
    "ModelMetadata": _object(
        ["name", "platform", "inputs", "outputs"],
        name=_TEXT,
        versions=_list(_TEXT),
        platform=_TEXT,
        inputs=_METADATA,
        outputs=_METADATA,
    ),
    "Tensor": _object(_REQUIRED, **_OF_TENSOR, data=_DATA),
    "InferenceRequest": _object(["inputs"], id=_TEXT, parameters=_PARAMETERS, inputs=_TENSORS, outputs=_REQUESTED),
    "InferenceAnswer": _object(
        ["model_name", "outputs"],
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        parameters=_PARAMETERS,
        outputs=_TENSORS,
    ),
    "Array": {
        "type": "object",
        "description": "A tensor: its elements as lists, or little-endian in C order as base64.",
        "properties": {"dtype": {"type": "string", "enum": sorted(DTYPE_NAMES)}, "shape": _SHAPE, "data": {}},
        "required": ["dtype"],
    },
}
_SERVER_PATHS: Final[dict[str, Schema]] = {
    "/v2": {"get": _operation("Which server this is.", _ref("Server"))},
    "/v2/health/live": {"get": _operation("Whether the gateway is live.", _ref("Live"))},
    "/v2/health/ready": {"get": _operation("Whether the gateway takes queries.", _ref("Ready"))},
}
