"""Plain JSON for web clients.

    POST /v1/pipelines/P/predict   {"inputs": {...}, "key"?, "timeout_ms"?, "after"?, "priority"?, "parameters"?, "id"?}
                                   {"queries": [{...}, ...]} comes back as server-sent events, as they are answered
    POST /v1/pipelines/P/feedback  {"feedback": text of an answer, "learner": name, "truth": value, "inputs"?: {...}}
                                   {"learner": name, "truths": [{"feedback", "truth", "inputs"?}, ...]}

Values are as in docs/clients.md. What is wrong with one query of many is in its own event, and with one truth of many
in its own place of the answer.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from spillway.agents.gateway.asking import Answered, Asked, Served
from spillway.agents.gateway.bodies import bad, client_id, read_object
from spillway.agents.gateway.parameters import ask_of
from spillway.agents.gateway.receiving import Room, body_of, require_media
from spillway.agents.gateway.rest import caller_of, identified, note_gone
from spillway.agents.gateway.statuses import status_of
from spillway.lineage.errors import SpillwayError, WireError
from spillway.lineage.values.json_text import read_value, show_outcome
from spillway.producers.client.feedback import Truth
from spillway.topology.quantities import shown

if TYPE_CHECKING:
    from spillway.agents.gateway.asking import Pipelines
    from spillway.agents.gateway.feedback import Signer

PROTOCOL: Final = "json"
MOST_QUERIES: Final = 1_000  # of one call
_WINDOW: Final = 256  # of them under way
_WRITE_SECONDS: Final = 30.0  # for a client to read an event
_JSON: Final = "application/json"
_JSON_UTF8: Final = f"{_JSON}; charset=utf-8"
_OF_A_QUERY: Final = frozenset({"inputs", "key", "timeout_ms", "after", "priority", "parameters", "id"})
_OF_A_TRUTH: Final = frozenset({"feedback", "learner", "truth", "inputs"})
_OF_THE_ANSWER: Final = frozenset({"outputs", "flags", "truth"})
_OF_MANY_TRUTHS: Final = frozenset({"learner", "truths"})


class Plain:
    """The handlers of one gateway."""

    def __init__(self, pipelines: Pipelines, room: Room, signer: Signer) -> None:
        self._pipelines, self._room, self._signer = pipelines, room, signer

    def add(self, app: web.Application) -> None:
        app.router.add_post("/v1/pipelines/{name}/predict", self._predict)
        app.router.add_post("/v1/pipelines/{name}/feedback", self._feedback)

    def _served(self, request: web.Request) -> Served:
        return self._pipelines.find(request.match_info["name"], "", caller_of(request).pipelines)

    async def _predict(self, request: web.Request) -> web.StreamResponse:
        served = self._served(request)
        require_media(request, _JSON)
        async with body_of(request, self._room, served.limits.max_message_bytes) as body:
            told = read_object(body, served.limits)
            if "queries" in told:
                return await self._predict_many(request, served, told)
            answered = await served.ask(_query(request, served, told), PROTOCOL)
            note_gone(request, served, PROTOCOL)
            shown_answer = json.dumps(self._shown(served, answered)).encode("ascii")
            headers = identified(answered, {"Content-Type": _JSON_UTF8})
            return web.Response(body=shown_answer, status=answered.status.http, headers=headers)

    async def _predict_many(self, request: web.Request, served: Served, told: dict[str, Any]) -> web.StreamResponse:
        queries = told["queries"]
        if not isinstance(queries, list) or len(queries) > MOST_QUERIES or told.keys() != {"queries"}:
            raise bad(f"queries: must be a list of at most {MOST_QUERIES} objects, and alone in the body")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        window = asyncio.Semaphore(_WINDOW)
        tasks = [asyncio.create_task(self._one(request, served, each, n, window)) for n, each in enumerate(queries)]
        try:
            for task in asyncio.as_completed(tasks):
                event = json.dumps(await task, ensure_ascii=False)
                async with asyncio.timeout(_WRITE_SECONDS):
                    await response.write(f"data: {event}\n\n".encode("utf-8", "replace"))
            await response.write(b"event: end\ndata: {}\n\n")
        finally:
            for task in tasks:
                task.cancel()
        return response

    async def _one(
        self, request: web.Request, served: Served, told: Any, number: int, window: asyncio.Semaphore
    ) -> dict[str, Any]:
        async with window:
            try:
                if not isinstance(told, dict):
                    raise bad(f"queries[{number}]: must be an object, not {shown(told)}")
                query = _query(request, served, told)
                if query.idempotency_key:
                    query = replace(query, idempotency_key=f"{query.idempotency_key}.{number}")
                answered = await served.ask(query, PROTOCOL)
            except SpillwayError as error:
                answered = Answered(status_of(error), str(error), "", None)
            return {"index": number, "status": answered.status.http, **self._shown(served, answered)}

    def _shown(self, served: Served, answered: Answered) -> dict[str, Any]:
        outcome = answered.outcome
        told: dict[str, Any] = {"error": answered.error} if answered.error else {}
        if outcome is None:
            return {**told, "request_id": answered.request_id}
        shown_outcome = show_outcome(outcome, answered.request_id, outcome.latency or 0.0, late=outcome.late)
        feedback = self._signer.text_of(served.name, outcome)
        return {**told, **shown_outcome, **({"feedback": feedback} if feedback else {})}

    async def _feedback(self, request: web.Request) -> web.Response:
        served = self._served(request)
        require_media(request, _JSON)
        async with body_of(request, self._room, served.limits.max_message_bytes) as body:
            told = read_object(body, served.limits)
            if "truths" in told:
                return web.json_response(await self._feedback_many(served, told), status=202)
            _only(told, _OF_A_TRUTH)
            each = self._truth(served, told)
            sent = await served.client.feedback(told["learner"], each.of, each.truth, inputs=each.inputs)
        return web.json_response({"learner": sent.learner, "id": sent.id}, status=202)

    async def _feedback_many(self, served: Served, told: dict[str, Any]) -> dict[str, Any]:
        """Send many truths, and wait until the broker has them; what each has come to is in its place."""
        _only(told, _OF_MANY_TRUTHS)
        learner, truths = told.get("learner"), told["truths"]
        if not isinstance(learner, str) or not isinstance(truths, list) or not 0 < len(truths) <= MOST_QUERIES:
            raise bad(f"truths: must be a list of 1 to {MOST_QUERIES} objects, beside the learner's name")
        results: list[dict[str, Any]] = [{} for _ in truths]
        read: dict[int, Truth] = {}
        for place, each in enumerate(truths):
            try:
                if not isinstance(each, dict):
                    raise bad(f"must be an object, not {shown(each)}")
                _only(each, _OF_A_TRUTH - {"learner"})
                read[place] = self._truth(served, {**each, "learner": learner})
            except WireError as error:
                results[place] = {"error": f"truths[{place}]: {error}"}
        sent = await served.client.feedback_many(learner, read.values())
        for number, (place, feedback) in enumerate(zip(read, sent, strict=True)):
            try:
                await asyncio.to_thread(feedback.accepted)
                results[place] = {"id": feedback.id}
            except SpillwayError as error:
                text = str(error).removeprefix(f"truths[{number}]: ")
                results[place] = {"error": f"truths[{place}]: {text}"}
        return {"learner": learner, "truths": results}

    def _truth(self, served: Served, told: dict[str, Any]) -> Truth:
        text = told.get("feedback")
        if not isinstance(told.get("learner"), str) or not isinstance(text, str) or "truth" not in told:
            raise bad("send the learner's name, the truth, and as 'feedback' the text that came with the answer")
        outcome = self._signer.outcome_of(served.name, text, served.limits)
        truth = read_value(told["truth"], "truth", served.limits)
        inputs = None if told.get("inputs") is None else _values(told, "inputs", served)
        if own := sorted(_OF_THE_ANSWER & (inputs or {}).keys()):
            raise bad(f"inputs.{own[0]}: a learner gets what was signed with the answer; send other inputs")
        return Truth(outcome, truth, inputs)


def _query(request: web.Request, served: Served, told: dict[str, Any]) -> Asked:
    _only(told, _OF_A_QUERY)
    inputs, parameters = _values(told, "inputs", served), _object(told, "parameters") if told.get("parameters") else {}
    own = {name: told[name] for name in ("key", "after", "priority") if told.get(name) is not None}
    timeout = told.get("timeout_ms")
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < 1e9:  # noqa: PLR2004
            raise bad(f"timeout_ms: must be a number above 0, not {shown(timeout)}")
        own["timeout"] = max(1, int(timeout * 1000))
    name = client_id(told)
    ask = ask_of({**parameters, **own}, served.limits, needs=served.signature.needs)
    return Asked.of(request.headers, caller_of(request), inputs, ask, name)


def _values(told: dict[str, Any], what: str, served: Served) -> dict[str, Any]:
    named = _object(told, what).items()
    return {name: read_value(value, f"{what}.{name:.40}", served.limits) for name, value in named}


def _object(told: dict[str, Any], what: str) -> dict[str, Any]:
    values = told.get(what)
    if not isinstance(values, dict):
        raise bad(f'{what}: must be an object of values by name, as {{"name": "Ada"}}, not {shown(values)}')
    return values


def _only(told: dict[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(told.keys() - known)
    if unknown:
        raise bad(f"there is no field {unknown[0]!r:.80}; there are {', '.join(sorted(known))}")
