"""The kernel: two shapes (tables and logs), four verbs, one transaction.

`schema` declares shapes as data, `ops` holds the operations and reads, `engine` is what a backend implements.
`validate` checks every request once, above all engines, and `answers` every row that comes back; `semantics` defines
conditions and expressions for engines that evaluate them in Python. `codec` and `cursor` turn values into bytes and
back; `url`, `redaction` and `transport` are what engines of servers share.
"""
