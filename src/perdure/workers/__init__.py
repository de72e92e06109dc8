"""Workers: processes that drive the runs of a store. `serve` finds runs and calls your handler with a `Job` for each.

The room uses nothing but the public calls of a store: a lease is a profile with a time to live, and picking up a run is
a commit. `serving` looks for work, `lease` keeps others away, `driving` runs one handler, `job` is what the handler
holds. `program` is a whole worker process in one call.
"""

from __future__ import annotations

from perdure.workers.driving import Handler
from perdure.workers.hold import Stopped
from perdure.workers.job import Job
from perdure.workers.lease import LEASES
from perdure.workers.program import ServeOptions, run
from perdure.workers.serving import serve
from perdure.workers.tool_calls import call_key
from perdure.workers.transient import transient

__all__ = ["Handler", "Job", "LEASES", "ServeOptions", "Stopped", "call_key", "run", "serve", "transient"]
