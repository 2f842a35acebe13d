-- Ends a request that admit.lua counted, and adds the difference between used and estimated tokens.
-- ARGV: member, difference in tokens, day, 1 to end only a member that is still in progress, then for each
-- bucket: tokens per minute, tokens per day.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local difference, day, if_counted = tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
for nth = 1, #KEYS / 2 do
  local counts, inside = KEYS[2 * nth - 1], KEYS[2 * nth]
  local per_minute, per_day = tonumber(ARGV[3 + 2 * nth]), tonumber(ARGV[4 + 2 * nth])
  local was_inside = redis.call('ZREM', inside, ARGV[1]) == 1
  local ends = was_inside or not if_counted
  if ends and per_minute > 0 then
    local known = redis.call('HMGET', counts, 'tokens', 'tokens_at')
    local full, at = tonumber(known[1]) or 0, tonumber(known[2]) or now
    full = math.max(0, full - (now - at) * per_minute / 60000)
    redis.call('HSET', counts, 'tokens', tostring(math.max(0, full + difference)), 'tokens_at', now)
  end
  if ends and per_day > 0 and difference ~= 0 then redis.call('HINCRBY', counts, 'day_' .. day, difference) end
  redis.call('EXPIRE', counts, 172800)
end
return 1
