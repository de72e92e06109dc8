"""The stores as blocking callers see them."""

from perdure.sync.stores.branches import Branches
from perdure.sync.stores.messages import Messages
from perdure.sync.stores.pending import Pending
from perdure.sync.stores.profiles import Profiles
from perdure.sync.stores.runs import Runs
from perdure.sync.stores.state import State
from perdure.sync.stores.store import Store
from perdure.sync.stores.thread_handle import ThreadHandle
from perdure.sync.stores.threads import Threads

__all__ = [
    "Branches",
    "Messages",
    "Pending",
    "Profiles",
    "Runs",
    "State",
    "Store",
    "ThreadHandle",
    "Threads",
]
