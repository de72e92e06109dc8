"""Perdure: the durable state layer for AI agents.

An agent's conversation, runs and state survive crashes, branch, and can be looked at. Open a store with `perdure.open`
(async) or `perdure.sync.open` (blocking); the stores hang off it under plain nouns.
"""

from typing import TYPE_CHECKING

from perdure.errors import (
    AlreadyExists,
    ConflictError,
    CorruptError,
    CursorExpired,
    HasChildren,
    IllegalTransition,
    InvalidError,
    KeyReused,
    NotFoundError,
    OutcomeUnknown,
    PerdureError,
    SelectionConflict,
    StaleClaim,
    UnavailableError,
    UnsupportedError,
    VersionConflict,
)
from perdure.kernel.engine import Capabilities, Health
from perdure.kernel.transport import InsecureTransportWarning
from perdure.model.branch import Branch, Label
from perdure.model.faithful import Extra, Opaque
from perdure.model.message import (
    Audio,
    Base64Source,
    Block,
    Compaction,
    Document,
    Image,
    Message,
    MessageRecord,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    UnfinishedCall,
    UrlSource,
    Video,
)
from perdure.model.page import Page
from perdure.model.pending import DeliveryMode, PendingMessage, PendingQueue
from perdure.model.receipt import Receipt, Snapshot
from perdure.model.run import (
    NewRun,
    Outcome,
    Run,
    RunBody,
    RunChange,
    RunInput,
    RunOutput,
    Termination,
    Ticket,
    Waiting,
)
from perdure.model.run_snapshots import Decision, RunActivation, RunIntent, RunRequest, RunTrace, SeqRange
from perdure.model.state import REMOVE, Doc, StateDoc
from perdure.model.thread import NewThread, Thread
from perdure.opening import open
from perdure.stores.store import Store

__version__: str

if not TYPE_CHECKING:  # a type checker would take every misspelt name for this one

    def __getattr__(name: str) -> str:
        """The version is in the package's metadata; reading it costs more than the rest of this import."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        number = globals()[name] = version("perdure")
        return number


__all__ = [
    "REMOVE",
    "AlreadyExists",
    "Audio",
    "Base64Source",
    "Block",
    "Branch",
    "Capabilities",
    "Compaction",
    "ConflictError",
    "CorruptError",
    "CursorExpired",
    "Decision",
    "DeliveryMode",
    "Doc",
    "Document",
    "Extra",
    "HasChildren",
    "Health",
    "IllegalTransition",
    "Image",
    "InsecureTransportWarning",
    "InvalidError",
    "KeyReused",
    "Label",
    "Message",
    "MessageRecord",
    "NewRun",
    "NewThread",
    "NotFoundError",
    "Opaque",
    "Outcome",
    "OutcomeUnknown",
    "Page",
    "PendingMessage",
    "PendingQueue",
    "PerdureError",
    "Receipt",
    "Run",
    "RunActivation",
    "RunBody",
    "RunChange",
    "RunInput",
    "RunIntent",
    "RunOutput",
    "RunRequest",
    "RunTrace",
    "SelectionConflict",
    "SeqRange",
    "Snapshot",
    "StaleClaim",
    "StateDoc",
    "Store",
    "Termination",
    "Text",
    "Thinking",
    "Thread",
    "Ticket",
    "ToolResult",
    "ToolUse",
    "UnavailableError",
    "UnfinishedCall",
    "UnsupportedError",
    "UrlSource",
    "VersionConflict",
    "Video",
    "Waiting",
    "open",
]
