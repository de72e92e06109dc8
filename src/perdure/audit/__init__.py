"""The auditor: reads a whole store and reports what is damaged or contradicts itself.

`perdure doctor verify` runs it, and so does every crash test. It reads through kernel views alone, so it works on every
engine; it reads in chunks, so it works on large stores; and it may run while others write.
"""

from perdure.audit.findings import CHECKS, Finding, Progress
from perdure.audit.store import digest, engine_findings, verify, verify_engine, verify_threads

__all__ = ["CHECKS", "Finding", "Progress", "digest", "engine_findings", "verify", "verify_engine", "verify_threads"]
