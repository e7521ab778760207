-- Asks the server which of our own commands we may not send. Servers older than Redis 7.0 cannot tell.
-- KEYS: the keys of the commands
-- ARGV: command, number of arguments, arguments, ...
-- Returns the commands that are refused, as 'command key'.
local refused = {}
if not redis.acl_check_cmd then
  return refused
end
local at = 1
while at <= #ARGV do
  local command = {ARGV[at]}
  for i = 1, tonumber(ARGV[at + 1]) do
    command[i + 1] = ARGV[at + 1 + i]
  end
  if not redis.acl_check_cmd(unpack(command)) then
    refused[#refused + 1] = command[1] .. ' ' .. (command[2] or '')
  end
  at = at + 1 + #command
end
return refused
