-- Run a text that came as the last argument, as if it had been loaded: for transactions too rare to leave a script of
-- their own on the server.
return loadstring(table.remove(ARGV))()
