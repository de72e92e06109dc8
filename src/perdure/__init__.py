"""Perdure: the durable state layer for AI agents.

An agent's conversation, runs and state survive crashes, branch, and can be looked at. Open a store with `perdure.open`
(async) or `perdure.sync.open` (blocking); the stores hang off it under plain nouns.
"""

import logging
from typing import TYPE_CHECKING

from perdure.errors import (
    AlreadyExists,
    ConflictError,
    CorruptError,
    CursorExpired,
    HasChildren,
    IllegalTransition,
    IncompleteStream,
    InvalidError,
    KeyReused,
    NotFoundError,
    OutcomeUnknown,
    PerdureError,
    SelectionConflict,
    StaleClaim,
    ThreadBusy,
    UnavailableError,
    UnsupportedError,
    VersionConflict,
)
from perdure.kernel.engine import Capabilities, Health
from perdure.kernel.transport import InsecureTransportWarning
from perdure.model.branch import Branch, Label, Variant
from perdure.model.draft import Draft
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
    Usage,
    Video,
)
from perdure.model.message_page import MessagePage
from perdure.model.page import Page
from perdure.model.pending import DeliveryMode, PendingMessage, PendingQueue
from perdure.model.profile import Profile, ProfileChange
from perdure.model.receipt import Receipt, RunReceipt, Snapshot
from perdure.model.run import (
    NewRun,
    Outcome,
    Run,
    RunBody,
    RunChange,
    RunInput,
    RunOutput,
    Takeovers,
    Termination,
)
from perdure.model.run_snapshots import Decision, RunActivation, RunIntent, RunOptions, RunRequest, RunTrace, SeqRange
from perdure.model.state import REMOVE, Doc, StateDoc
from perdure.model.thread import NewThread, Thread
from perdure.model.tickets import Ticket, Waiting
from perdure.model.tree import Tree, TreeNode
from perdure.opening import open
from perdure.stores.buffered import BufferedWriter
from perdure.stores.follower import Follower
from perdure.stores.options import AppendOptions, CommitOptions
from perdure.stores.pending import FreezeOptions
from perdure.stores.runs import StartOptions
from perdure.stores.store import Store
from perdure.stores.thread_handle import ThreadHandle

__version__: str

# A library stays silent until the application sets logging up: without a handler Python would print warnings.
logging.getLogger("perdure").addHandler(logging.NullHandler())

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
    "AppendOptions",
    "Audio",
    "Base64Source",
    "Block",
    "Branch",
    "BufferedWriter",
    "Capabilities",
    "CommitOptions",
    "Compaction",
    "ConflictError",
    "CorruptError",
    "CursorExpired",
    "Decision",
    "DeliveryMode",
    "Doc",
    "Document",
    "Draft",
    "Extra",
    "Follower",
    "FreezeOptions",
    "HasChildren",
    "Health",
    "IllegalTransition",
    "IncompleteStream",
    "Image",
    "InsecureTransportWarning",
    "InvalidError",
    "KeyReused",
    "Label",
    "Message",
    "MessagePage",
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
    "Profile",
    "ProfileChange",
    "Receipt",
    "Run",
    "RunActivation",
    "RunBody",
    "RunChange",
    "RunInput",
    "RunIntent",
    "RunOptions",
    "RunOutput",
    "RunReceipt",
    "RunRequest",
    "RunTrace",
    "SelectionConflict",
    "SeqRange",
    "Snapshot",
    "StaleClaim",
    "StartOptions",
    "StateDoc",
    "Store",
    "Takeovers",
    "Termination",
    "Text",
    "Thinking",
    "Thread",
    "ThreadBusy",
    "ThreadHandle",
    "Ticket",
    "ToolResult",
    "ToolUse",
    "Tree",
    "TreeNode",
    "UnavailableError",
    "UnfinishedCall",
    "UnsupportedError",
    "UrlSource",
    "Usage",
    "Variant",
    "VersionConflict",
    "Video",
    "Waiting",
    "open",
]
