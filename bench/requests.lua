-- The requests of a round. Its ids start at BENCH_FIRST, and every thread has its own range.
local kind = os.getenv("BENCH_KIND")
local first = tonumber(os.getenv("BENCH_FIRST"))
local stored = tonumber(os.getenv("BENCH_STORED"))
local ids_per_thread = tonumber(os.getenv("BENCH_IDS_PER_THREAD"))
local list_path = os.getenv("BENCH_LIST_PATH")
local path = os.getenv("BENCH_PATH")
local plant = '{"id":' .. os.getenv("BENCH_ID") .. ',"name":"Monstera deliciosa","tag":"%s"}'

local threads = {}
created = 0
offset = 0

function setup(thread)
  thread:set("offset", #threads * ids_per_thread)
  table.insert(threads, thread)
end

local function create(id, tag)
  created = created + 1
  return wrk.format("POST", path, nil, string.format(plant, id, tag))
end

local function next_id() return first + offset + created end

-- Scattered over 2^52, but computed from the number, so load.ts can read the plants back with the same formula.
local function scatter(number)
  return (number * 40503) % 65536 * 68719476736 + (number * 69069) % 68719476736
end

local make = ({
  create = function() return create(next_id(), "tropical") end,
  ["create-tagged"] = function() return create(next_id(), "tag " .. math.random(1, 50)) end,
  ["create-random"] = function() return create(scatter(next_id()), "tropical") end,
  get = function() return wrk.format("GET", path .. "/" .. math.random(0, stored - 1)) end,
  list = function() return wrk.format("GET", list_path) end,
})[kind]

function init()
  math.randomseed(first + offset)
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = "Bearer " .. os.getenv("BENCH_TOKEN")
end

-- wrk asks the first thread for one request that it does not send.
local is_probed = false

function request()
  local made = make()
  if offset == 0 and not is_probed then
    is_probed = true
    created = 0
  end
  return made
end

function done(summary, latency)
  local issued = {}
  for index, thread in ipairs(threads) do issued[index] = string.format("%d", thread:get("created")) end
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"durationUs":%d,"failed":%d,"issued":[%s],"latency":{"p50Ms":%.3f,"p99Ms":%.3f,"p999Ms":%.3f}}\n',
    summary.requests, summary.duration,
    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
    table.concat(issued, ","),
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3))
end
