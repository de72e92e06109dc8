"""Pure decisions: what a message may look like, how a run may move, what a history holds. No I/O, no clock."""
