"""Conversations in the formats of model providers: pure functions from their JSON to messages and back.

`openai` is Chat Completions, which many other servers speak too; `openai_responses` is the Responses API; `anthropic`
is the Messages API. Each module says what its format can carry. None of them needs an SDK or does I/O: they take plain
dicts, and any object with `model_dump`, which the objects of both SDKs have.

What only one format knows travels in `extra` under the name of its module, and no other format sends it.
"""
