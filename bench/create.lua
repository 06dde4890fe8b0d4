-- Creates with ids that never repeat, each thread in a range of its own.
local first = tonumber(os.getenv("BENCH_FIRST_ID"))
local token = os.getenv("BENCH_TOKEN")
local threads = 0
local failures = 0

function setup(thread)
  thread:set("base", first + threads * 100000000)
  threads = threads + 1
end

function init()
  next_id = base
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = "Bearer " .. token
end

function request()
  next_id = next_id + 1
  local body = string.format('{"id":%d,"name":"Monstera deliciosa","tag":"tropical"}', next_id)
  return wrk.format(nil, nil, nil, body)
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests":%d,"durationUs":%d,"bytes":%d,"p50Us":%d,"p99Us":%d,"p999Us":%d,"notOk":%d,"socketErrors":%d}\n',
    summary.requests, summary.duration, summary.bytes, latency:percentile(50), latency:percentile(99),
    latency:percentile(99.9), errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
