"""Bugs in messages of providers, and in what messages say of the model that wrote them."""

from __future__ import annotations

from tests.planted.bug import Bug

_STREAMS = "test:tests/formats/test_streams.py"
_REQUESTS = "test:tests/formats/test_requests.py"
_TRIPS = "test:tests/formats/test_round_trips.py"

FORMAT_BUGS = (
    Bug(
        "a stream that was cut gives what has come so far",
        "formats/streams.py",
        "if missing is not None:",
        "if missing is None and not self.done:",
        (f"{_STREAMS}::test_a_stream_that_was_cut_is_an_error",),
    ),
    Bug(
        "parallel calls that share an index become one",
        "formats/openai_chunks.py",
        'call["id"] != name:',
        'call["id"] == name:',
        (f"{_STREAMS}::test_calls_of_servers_that_send_one_index_for_all",),
    ),
    Bug(
        "thinking that nothing follows is sent",
        "formats/anthropic_blocks.py",
        "while written and written[-1]",
        "while not written and written[-1:]",
        (f"{_REQUESTS}::test_thinking_that_nothing_follows_is_left_out",),
    ),
    Bug(
        "every tool result gets a turn of its own",
        "formats/anthropic.py",
        "if results is None:",
        "if results is None or results:",
        (f"{_TRIPS}::test_results_stand_directly_behind_their_calls",),
    ),
    Bug(
        "the arguments of a call are sent in another spelling",
        "formats/arguments.py",
        '        return text\n    return "{}"',
        '        return spelled\n    return "{}"',
        (f"{_TRIPS}::test_conversations_come_back_equal",),
    ),
    Bug(
        "nobody sees that a model refused",
        "formats/openai.py",
        "        content += read_refusal(others)\n",
        "        content += read_refusal({})\n",
        (f"{_REQUESTS}::test_people_see_a_refusal_and_its_format_gets_it_back",),
    ),
    Bug(
        "a refusal comes back as an answer",
        "formats/openai_parts.py",
        'get("type") == "refusal"',
        'get("type") == "refused"',
        (f"{_TRIPS}::test_conversations_come_back_equal",),
    ),
    Bug(
        "arguments that are not JSON are sent as they are",
        "formats/arguments.py",
        "read_arguments(text) != text",
        "read_arguments(text) is not None",
        (f"{_REQUESTS}::test_arguments_that_are_not_json_are_sent_as_json",),
    ),
    Bug(
        "a commit loses the usage of a message",
        "stores/records.py",
        "message.usage,",
        "None,",
        ("case:messages/fields-round-trip@memory",),
    ),
    Bug(
        "a field of another shape makes a stored message unreadable",
        "model/careful.py",
        "unfit = _unfit(cls, value) if added else added",
        "unfit = added - added",
        ("case:messages/usage-of-another-shape@memory",),
    ),
    Bug(
        "a browser is sent the fields of a provider",
        "model/public_json.py",
        "**nested, extra=NO_EXTRA)",
        "**nested)",
        ("test:tests/unit/test_public_json.py::test_a_page_has_what_people_may_see",),
    ),
    Bug(
        "a browser is sent what the model thought",
        "model/public_json.py",
        'frozenset(("thinking",))',
        'frozenset(("thoughts",))',
        ("test:tests/unit/test_public_json.py::test_a_page_has_what_people_may_see",),
    ),
    Bug(
        "a browser is sent the text of an exception",
        "sse.py",
        "isinstance(record, (MessageRecord, Run))",
        "isinstance(record, MessageRecord)",
        ("test:tests/unit/test_public_json.py::test_a_stream_of_events_sends_nothing_else",),
    ),
    Bug(
        "a browser is sent what a tool says of its failure",
        "model/public_json.py",
        '"content": [] if block.get("is_error") else',
        '"content": [] if False else',
        ("test:tests/unit/test_public_json.py::test_what_a_tool_says_of_its_failure_is_not_sent",),
    ),
    Bug(
        "a draft that changed is added to what a tab shows",
        "sse.py",
        "str(text).startswith(before)",
        "len(str(text)) > len(before)",
        ("test:tests/unit/test_sse.py::test_a_browser_is_sent_each_word_of_a_draft_once",),
    ),
    Bug(
        "a server that stops waits for its tabs",
        "sse.py",
        "if stopping.done():",
        "if stopping.cancelled():",
        ("test:tests/unit/test_sse.py::test_a_server_that_stops_ends_its_streams",),
        hangs=True,
    ),
    Bug(
        "a stream that never began leaves its follower open",
        "sse.py",
        "    def __del__(self) -> None:\n        self.follower.close()",
        "    def __del__(self) -> None:\n        self.follower = self.follower",
        ("test:tests/unit/test_sse.py::test_a_stream_that_is_closed_before_its_first_read_closes_its_follower",),
    ),
    Bug(
        "a page for a browser has internal messages",
        "model/message_page.py",
        "for record in self.items if record.visibility == ALL]",
        "for record in self.items]",
        ("test:tests/unit/test_public_json.py::test_internal_messages_are_not_sent",),
    ),
    Bug(
        "a browser is sent internal messages as they come",
        "sse.py",
        "if isinstance(record, MessageRecord) and record.visibility != ALL:",
        "if isinstance(record, MessageRecord) and not record.visibility:",
        ("test:tests/unit/test_public_json.py::test_internal_messages_are_not_sent",),
    ),
    Bug(
        "half a character is shown by itself",
        "model/halves.py",
        '        if "\\ud800" <= text[-1:] <= "\\udbff":',
        '        if "\\udc00" <= text[-1:] <= "\\udbff":',
        ("test:tests/formats/test_streams.py::test_a_character_that_a_server_split_is_whole_again",),
    ),
)
