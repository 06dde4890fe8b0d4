-- The requests of a scenario: BENCH_KIND says which, BENCH_FIRST where its ids begin.
local kind = os.getenv("BENCH_KIND")
local first = tonumber(os.getenv("BENCH_FIRST"))
local stored = tonumber(os.getenv("BENCH_STORED"))
local count = 0

local function create(id, tag)
  local body = string.format('{"id":%d,"name":"Monstera deliciosa","tag":"%s"}', id, tag)
  return wrk.format("POST", nil, nil, body)
end

local makers = {
  create = function() return create(first + count, "tropical") end,
  ["create-tagged"] = function() return create(first + count, "tag " .. math.random(1, 50)) end,
  ["create-random"] = function() return create(math.random(1, 4503599627370496) * 2 + 1, "tropical") end,
  get = function() return wrk.format("GET", wrk.path .. "/" .. math.random(0, stored - 1)) end,
  list = function() return wrk.format("GET") end,
}
local make = makers[kind]

function init()
  math.randomseed(first)
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = "Bearer " .. os.getenv("BENCH_TOKEN")
end

function request()
  count = count + 1
  return make()
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"notOk":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.status + errors.connect + errors.read + errors.write + errors.timeout))
end
