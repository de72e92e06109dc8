-- Run a text that came as the last argument, as if it had been loaded: for transactions too rare to leave a script of
-- their own on the server. It gets a short name, because errors quote the name, which else is the text itself.
local program, wrong = loadstring(table.remove(ARGV), '@perdure')
if not program then
  error('PERDURE_REFUSED ' .. wrong)
end
return program()
