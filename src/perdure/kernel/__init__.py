"""The kernel: two shapes (tables and logs), four verbs, one transaction.

`schema` declares shapes as data, `ops` and `reads` are what can be asked, `engine` is what a backend implements,
`door` is where stores knock: it validates once, above every engine. `codec` and `cursor` turn values into
bytes and back.
"""
