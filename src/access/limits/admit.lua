-- Counts one request in all buckets, or in none. Each bucket has two keys: a hash of levels, and a sorted
-- set of the requests in progress, scored by the time at which each stops counting unless it is renewed.
-- ARGV: member, estimated tokens, milliseconds a member counts, day, milliseconds left of the day, then for
-- each bucket: requests per minute, tokens per minute, at once, tokens per day (0: no limit).
-- Returns {0, bucket, figure, retry in milliseconds} or {1, for each bucket: requests left, tokens left}.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local member, estimate, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local day, rest = ARGV[4], tonumber(ARGV[5])
local buckets = #KEYS / 2
local requests, tokens = {}, {}

local function level(key, field, per_minute)
  local known = redis.call('HMGET', key, field, field .. '_at')
  local full, at = tonumber(known[1]) or 0, tonumber(known[2]) or now
  return math.max(0, full - (now - at) * per_minute / 60000)
end

for nth = 1, buckets do
  local counts, inside = KEYS[2 * nth - 1], KEYS[2 * nth]
  local first = 5 + 4 * (nth - 1)
  local per_minute, tokens_per_minute = tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
  local at_once, per_day = tonumber(ARGV[first + 3]), tonumber(ARGV[first + 4])
  if at_once > 0 then
    redis.call('ZREMRANGEBYSCORE', inside, '-inf', now)
    if redis.call('ZCARD', inside) >= at_once then return {0, nth, 3, 1000} end
  end
  if per_day > 0 and (tonumber(redis.call('HGET', counts, 'day_' .. day)) or 0) >= per_day then
    return {0, nth, 4, rest}
  end
  if tokens_per_minute > 0 then
    tokens[nth] = level(counts, 'tokens', tokens_per_minute)
    if tokens[nth] >= tokens_per_minute then
      return {0, nth, 2, math.ceil((tokens[nth] - tokens_per_minute + 1) * 60000 / tokens_per_minute)}
    end
  end
  if per_minute > 0 then
    requests[nth] = level(counts, 'requests', per_minute)
    if requests[nth] + 1 > per_minute + 1e-6 then
      return {0, nth, 1, math.max(1, math.ceil((requests[nth] + 1 - per_minute) * 60000 / per_minute))}
    end
  end
end

local answer = {1}
for nth = 1, buckets do
  local counts, inside = KEYS[2 * nth - 1], KEYS[2 * nth]
  local first = 5 + 4 * (nth - 1)
  local per_minute, tokens_per_minute = tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2])
  local at_once, per_day = tonumber(ARGV[first + 3]), tonumber(ARGV[first + 4])
  if at_once > 0 then
    redis.call('ZADD', inside, now + lease, member)
    redis.call('PEXPIRE', inside, lease)
  end
  if requests[nth] then
    redis.call('HSET', counts, 'requests', tostring(requests[nth] + 1), 'requests_at', now)
  end
  if tokens[nth] then
    redis.call('HSET', counts, 'tokens', tostring(tokens[nth] + estimate), 'tokens_at', now)
  end
  if per_day > 0 then redis.call('HINCRBY', counts, 'day_' .. day, estimate) end
  redis.call('EXPIRE', counts, 172800)
  answer[2 * nth] = requests[nth] and math.floor(per_minute - requests[nth] - 1 + 1e-6) or 0
  answer[2 * nth + 1] = tokens[nth] and math.max(0, math.floor(tokens_per_minute - tokens[nth] - estimate)) or 0
end
return answer
