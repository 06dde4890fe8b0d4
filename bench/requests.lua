-- The requests of a round. BENCH_FIRST is where its ids begin; every thread has a range of its own.
local kind = os.getenv("BENCH_KIND")
local first = tonumber(os.getenv("BENCH_FIRST"))
local stored = tonumber(os.getenv("BENCH_STORED"))
local ids_a_thread = tonumber(os.getenv("BENCH_IDS_A_THREAD"))
local create_path = os.getenv("BENCH_CREATE_PATH")
local get_path = os.getenv("BENCH_GET_PATH")
local list_path = os.getenv("BENCH_LIST_PATH")

local threads = {}
created = 0
offset = 0

function setup(thread)
  thread:set("offset", #threads * ids_a_thread)
  table.insert(threads, thread)
end

local function create(id, tag)
  created = created + 1
  local body = string.format('{"id":%d,"name":"Monstera deliciosa","tag":"%s"}', id, tag)
  return wrk.format("POST", create_path, nil, body)
end

local function next_id() return first + offset + created end

-- Scattered over 2^52, yet known from its number alone, so that it can be read back; ids.ts has the same.
local function scatter(number)
  return (number * 40503) % 65536 * 68719476736 + (number * 69069) % 68719476736
end

local function get() return wrk.format("GET", get_path .. "/" .. math.random(0, stored - 1)) end

local makers = {
  create = function() return create(next_id(), "tropical") end,
  ["create-tagged"] = function() return create(next_id(), "tag " .. math.random(1, 50)) end,
  ["create-random"] = function() return create(scatter(next_id()), "tropical") end,
  get = get,
  list = function() return wrk.format("GET", list_path) end,
  mixed = function()
    if math.random(10) == 1 then return create(next_id(), "tropical") end
    return get()
  end,
}
local make = makers[kind]

function init()
  math.randomseed(first + offset)
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = "Bearer " .. os.getenv("BENCH_TOKEN")
end

-- wrk has the first thread make one request to look at, and does not send it.
local is_looked_at = false

function request()
  local made = make()
  if offset == 0 and not is_looked_at then
    is_looked_at = true
    created = 0
  end
  return made
end

function done(summary, latency)
  local issued = {}
  for index, thread in ipairs(threads) do issued[index] = string.format("%d", thread:get("created")) end
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"durationUs":%d,"p50Us":%d,"p99Us":%d,"p999Us":%d,"refused":%d,"cut":%d,"late":%d,"issued":[%s]}\n',
    summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
    errors.status, errors.connect + errors.read + errors.write, errors.timeout,
    table.concat(issued, ",")))
end
