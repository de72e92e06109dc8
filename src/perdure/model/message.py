"""Messages of people, models and tools, as lists of blocks.

A `Message` is what a caller commits; a `MessageRecord` is a message with its position in the log. Content is always
a list of blocks; a tool call is a `ToolUse` block and nothing else, and a tool message holds exactly one `ToolResult`.
Blocks and fields that this build does not know are carried (see `faithful`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypedDict, Union, Unpack

import msgspec

from perdure import limits
from perdure.errors import InvalidError, short_repr
from perdure.model.careful import from_json
from perdure.model.faithful import NO_EXTRA, Extra, Faithful, Opaque, as_dict, to_json
from perdure.model.public_json import message_json
from perdure.model.record import Record
from perdure.model.stored_json import Reader, encodable, encode, write

ALL = "all"
INTERNAL = "internal"


class Base64Source(Faithful, frozen=True, tag="base64", tag_field="type", gc=False):
    """Media carried inline."""

    media_type: str
    """What it is, as a MIME type: `image/png`."""
    data: str
    """The bytes, as base64 text."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class UrlSource(Faithful, frozen=True, tag="url", tag_field="type", gc=False):
    """Media somewhere else."""

    url: str
    """Where it is. Perdure never fetches it."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


Source = Union[Base64Source, UrlSource, Opaque]  # noqa: UP007 - named at run time by the reader


class Text(Faithful, frozen=True, tag="text", tag_field="type", gc=False):
    """Plain text."""

    text: str
    """The text."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class _Medium(Faithful, frozen=True, gc=False):
    """What pictures, sounds and films have in common."""

    source: Source
    """Where it is: a `Base64Source`, a `UrlSource`, or an `Opaque` of another type."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class Image(_Medium, frozen=True, tag="image", tag_field="type", gc=False):
    """A picture."""


class Audio(_Medium, frozen=True, tag="audio", tag_field="type", gc=False):
    """A sound."""


class Video(_Medium, frozen=True, tag="video", tag_field="type", gc=False):
    """A film."""


class Document(Faithful, frozen=True, tag="document", tag_field="type", gc=False):
    """A document, with a title if it has one."""

    source: Source
    """The document: a `Base64Source`, a `UrlSource`, or an `Opaque` of another type."""
    title: str | None = None
    """What it is called."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class ToolUse(Faithful, frozen=True, tag="tool_use", tag_field="type", gc=False):
    """The model asks for a tool: `id` pairs the call with its result."""

    id: str
    """Pairs the call with its result: the result's `tool_use_id`."""
    name: str
    """The tool."""
    input: Any = None
    """The arguments, as any JSON value."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class ToolResult(Faithful, frozen=True, tag="tool_result", tag_field="type", gc=False):
    """What a tool answered to the call `tool_use_id`."""

    tool_use_id: str
    """The call that it answers."""
    content: list[Block] = []
    """What the tool answered, as blocks in order."""
    is_error: bool = False
    """Whether the tool failed."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


class Thinking(Faithful, frozen=True, tag="thinking", tag_field="type", gc=False):
    """The model's reasoning, with the provider's signature if there is one."""

    thinking: str
    """The reasoning, as text."""
    signature: str | None = None
    """The provider's signature, to be sent back unchanged."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


Block = Union[Text, Image, Audio, Video, Document, ToolUse, ToolResult, Thinking, Opaque]  # noqa: UP007


class Compaction(Faithful, frozen=True, gc=False):
    """Marks a message as the summary of the records `from_seq`..`to_seq`, which it replaces in the history."""

    from_seq: int
    """The first seq that the summary replaces."""
    to_seq: int
    """The last one."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


Tokens = Annotated[int, msgspec.Meta(ge=0, le=limits.INTEGER_MAX)]


class Usage(Faithful, frozen=True, gc=False):
    """The tokens that a model's answer cost, counted alike for every provider; 0 where the provider says nothing."""

    input_tokens: Tokens = 0
    """Everything the model read, whether it came from a cache or not."""
    output_tokens: Tokens = 0
    """Everything the model wrote, its reasoning included."""
    cache_read_tokens: Tokens = 0
    """The part of the input that was read from a cache."""
    cache_write_tokens: Tokens = 0
    """The part of the input that was written to a cache."""
    reasoning_tokens: Tokens = 0
    """The part of the output that was reasoning."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""


_ADDED = frozenset(("model", "stop_reason", "usage"))


class MessageBody(Faithful, frozen=True, gc=False):
    """The part of a message that is stored as JSON; the rest are columns."""

    ADDED: ClassVar[frozenset[str]] = _ADDED

    content: list[Block]
    sender_agent_id: str | None = None
    compaction: Compaction | None = None
    metadata: dict[str, Any] | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    extra: Extra = NO_EXTRA


class MessageFields(TypedDict, total=False):
    """What `Message.user` and its siblings take besides the content, all by keyword."""

    id: str | None
    visibility: str
    run_id: str | None
    step: int | None
    sender_agent_id: str | None
    compaction: Compaction | None
    metadata: dict[str, Any] | None
    model: str | None
    stop_reason: str | None
    usage: Usage | None
    extra: Extra


class Message(Faithful, frozen=True, gc=False):
    """One message of a conversation, to be committed or as it was read."""

    ADDED: ClassVar[frozenset[str]] = _ADDED

    role: str
    """`user`, `assistant`, `system` or `tool`."""
    content: list[Block]
    """Its blocks, in order."""
    id: str | None = None
    """Unique within its thread; `commit` mints one if it is None."""
    visibility: str = ALL
    """`all`, or `internal`: seen by the model only. On a tool message, `internal` marks the call as retracted."""
    run_id: str | None = None
    """The run that produced it; `commit` fills in its own run if it is None."""
    step: int | None = None
    """The step of that run, from 0."""
    sender_agent_id: str | None = None
    """The agent that sent it, where several talk to each other."""
    compaction: Compaction | None = None
    """Set on a summary: the records that it replaces in the history."""
    metadata: dict[str, Any] | None = None
    """Your own data, a JSON object."""
    model: str | None = None
    """The model that wrote it, as its provider names it."""
    stop_reason: str | None = None
    """Why the model stopped, in its provider's words."""
    usage: Usage | None = None
    """The tokens that it cost."""
    extra: Extra = NO_EXTRA
    """Unknown fields, carried as they are."""

    @staticmethod
    def user(content: str | Sequence[Block], **fields: Unpack[MessageFields]) -> Message:
        """A message from a person."""
        return Message(role="user", content=_blocks(content), **fields)

    @staticmethod
    def assistant(content: str | Sequence[Block], **fields: Unpack[MessageFields]) -> Message:
        """A message from the model."""
        return Message(role="assistant", content=_blocks(content), **fields)

    @staticmethod
    def system(content: str | Sequence[Block], **fields: Unpack[MessageFields]) -> Message:
        """Instructions."""
        return Message(role="system", content=_blocks(content), **fields)

    @staticmethod
    def tool(
        call_id: str,
        content: str | Sequence[Block] = "",
        *,
        is_error: bool = False,
        **fields: Unpack[MessageFields],
    ) -> Message:
        """The result of the tool call `call_id`."""
        result = ToolResult(tool_use_id=call_id, content=_blocks(content), is_error=is_error)
        return Message(role="tool", content=[result], **fields)

    @staticmethod
    def retraction(call_id: str, **fields: Unpack[MessageFields]) -> Message:
        """A marker that withdraws a tool call: call, result and marker leave the external view and the history."""
        fields["visibility"] = INTERNAL
        return Message.tool(call_id, **fields)

    @staticmethod
    def summary(content: str | Sequence[Block], from_seq: int, to_seq: int, **fields: Unpack[MessageFields]) -> Message:
        """A summary that replaces the records `from_seq`..`to_seq` in its branch's history; internal by default."""
        fields.setdefault("visibility", INTERNAL)
        fields["compaction"] = Compaction(from_seq=from_seq, to_seq=to_seq)
        return Message(role="user", content=_blocks(content), **fields)

    @staticmethod
    def from_json(value: Any) -> Message:
        """A message from decoded JSON, whatever unknown fields and blocks it holds.

        Content may be plain text, which is one text block, or null, which is none; so may the content of a
        `tool_result` block. Tool calls are `tool_use` blocks. Another vendor's fields for calls and results
        (`tool_calls`, `function_call`, `tool_call_id`) are refused unless empty: as unknown fields they would be lost.
        `perdure.formats` reads them.
        """
        if isinstance(value, dict):
            refuse_foreign_calls(value, "message")
            if "content" in value:
                value = {**value, "content": _spelled_out(value["content"])}
        try:
            return from_json(Message, value, "message")
        except RecursionError:
            raise InvalidError("nested too deeply", path="message") from None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, unknown fields at their level."""
        try:
            data: dict[str, Any] = to_json(self)
        except RecursionError:
            raise InvalidError("nested too deeply", path="message") from None
        return data

    @property
    def text(self) -> str:
        """The text blocks joined."""
        return text_of(self.content)

    @property
    def result_text(self) -> str:
        """The text that a tool answered: the text blocks inside a tool message's result, joined; else empty."""
        return "".join([text_of(block.content) for block in self.content if isinstance(block, ToolResult)])

    @property
    def tool_calls(self) -> list[ToolUse]:
        """The tool calls of this message, in order."""
        return [block for block in self.content if isinstance(block, ToolUse)]

    @property
    def tool_call_id(self) -> str | None:
        """The call that a tool message answers."""
        return call_answered(self.role, self.content)


class MessageRecord(Record, frozen=True, gc=False):
    """A message in the log of its thread."""

    thread_id: str
    """The thread it belongs to."""
    seq: int
    """Its number in the thread's log, from 1 over all branches."""
    branch: int
    """The branch it was written on."""
    parent_id: str | None
    """The message before it on its path; None for the first."""
    message: Message
    """The message itself."""
    at: int
    """When it was committed, in milliseconds."""

    @property
    def message_id(self) -> str:
        """The message's id, always present on a record."""
        return self.message.id or ""

    @property
    def role(self) -> str:
        """Who spoke."""
        return self.message.role

    @property
    def content(self) -> list[Block]:
        """The blocks."""
        return self.message.content

    @property
    def text(self) -> str:
        """The text blocks joined."""
        return text_of(self.message.content)

    @property
    def result_text(self) -> str:
        """The text that a tool answered; empty unless this is a tool message."""
        return self.message.result_text

    @property
    def usage(self) -> Usage | None:
        """The tokens that it cost."""
        return self.message.usage

    @property
    def visibility(self) -> str:
        """Who may see it."""
        return self.message.visibility

    @property
    def run_id(self) -> str | None:
        """The run that produced it."""
        return self.message.run_id

    @property
    def step(self) -> int | None:
        """The step of that run, from 0."""
        return self.message.step

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data of the record and its message."""
        position = {"seq": self.seq, "branch": self.branch, "parent_id": self.parent_id, "at": self.at}
        return {"thread_id": self.thread_id, **position, "message": self.message.to_json()}

    def public_json(self) -> dict[str, Any]:
        """JSON data for the browser of a user: without thinking, metadata, usage and fields of a provider."""
        return message_json(self)


class UnfinishedCall(Record, frozen=True):
    """A tool call that has no result on its path: it may or may not have run."""

    call: ToolUse
    """The call."""
    message_id: str
    """The message that made it."""
    seq: int
    """The seq of that message."""
    run_id: str | None
    """The run that produced it, if any."""


def refuse_foreign_calls(fields: Mapping[str, Any], path: str) -> None:
    """Refuse tool calls and results in another vendor's fields; empty ones are harmless, and carried."""
    for name, kind in (("tool_calls", list), ("function_call", dict)):
        held = fields.get(name)
        if held and isinstance(held, kind):
            raise InvalidError(
                f"the tool calls in the field {name!r} would be stored, but not recognised as tool calls",
                path=path,
                hint="read it with perdure.formats.openai.from_message, or write each call as a block of content: "
                '{"type": "tool_use", "id": call_id, "name": tool_name, "input": json.loads(arguments)}',
            )
    if fields.get("tool_call_id") and isinstance(fields["tool_call_id"], str):
        raise InvalidError(
            "the field 'tool_call_id' would be stored, but not recognised as the call that a tool answered",
            path=path,
            hint="read it with perdure.formats.openai.from_message, or write the result as the only block of content: "
            '{"role": "tool", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": result}]}',
        )


def _blocks(content: str | Sequence[Block]) -> list[Block]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    value: object = content
    if not isinstance(value, Sequence):
        hint = "json.dumps it" if isinstance(value, Mapping) else None
        raise InvalidError(f"content must be text or a list of blocks, not {short_repr(value)}", hint=hint)
    return list(content)


def _spelled_out(content: Any) -> Any:
    """Content as a list of blocks, where a provider may send text or null; anything else as it is."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return content
    return [_with_list(block) if _is_short_result(block) else block for block in content]


def _is_short_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result" and not isinstance(block.get("content"), list)


def _with_list(block: dict[str, Any]) -> dict[str, Any]:
    return {**block, "content": _spelled_out(block["content"])} if "content" in block else block


def text_of(content: list[Block]) -> str:
    """The text blocks of some content, joined."""
    return "".join([block.text for block in content if isinstance(block, Text)])


def call_answered(role: str, content: list[Block]) -> str | None:
    """The call id that a tool message answers, else None."""
    if role != "tool":
        return None
    for block in content:
        if type(block) is ToolResult:
            return block.tool_use_id
    return None


_LEAVES = frozenset((Text, ToolUse, Thinking))
"""Blocks that hold no nested records: the ones whose unknown fields are found at a glance."""

BODY_READER: Reader[MessageBody] = Reader(MessageBody)

_NESTING = frozenset((dict, list))


def may_nest(body: MessageBody) -> bool:
    """May the JSON of a body nest more than a few levels?

    Not if it holds texts, calls with plain arguments and plain unknown fields alone. A glance at what was decoded costs
    less than counting the brackets of a long text.
    """
    for block in body.content:
        if type(block) is ToolUse:
            if not _is_flat(block.input):
                return True
        elif type(block) is ToolResult:
            for inner in block.content:
                if type(inner) is not Text or (inner.extra is not NO_EXTRA and not _are_flat(inner.extra)):
                    return True
        elif type(block) is not Text and type(block) is not Thinking:
            return True
        if block.extra is not NO_EXTRA and not _are_flat(block.extra):
            return True
    usage, extra = body.usage, body.extra
    if usage is not None and usage.extra is not NO_EXTRA and not _are_flat(usage.extra):
        return True
    return body.metadata is not None or body.compaction is not None or (extra is not NO_EXTRA and not _are_flat(extra))


def _are_flat(extra: Any) -> bool:
    fields = as_dict(extra)
    return fields is not None and all(map(_is_flat, fields.values()))


def _is_flat(value: Any) -> bool:
    kind = type(value)
    return kind is not list and (kind is not dict or _NESTING.isdisjoint(map(type, value.values())))


def write_body(body: MessageBody) -> bytes:
    """The stored JSON of a message; a text that UTF-8 cannot carry was refused before."""
    if body.compaction is not None or (body.usage is not None and body.usage.extra is not NO_EXTRA):
        return write(body)
    content: list[Any] = body.content
    for at, block in enumerate(body.content):
        if type(block) is ToolResult:
            plain = all(type(inner) is Text and inner.extra is NO_EXTRA for inner in block.content)
        else:
            plain = type(block) in _LEAVES
        if not plain or block.extra is not NO_EXTRA:  # type: ignore[union-attr]
            if content is body.content:
                content = list(content)
            content[at] = encodable(block)
    return encode(body if content is body.content else msgspec.structs.replace(body, content=content))
