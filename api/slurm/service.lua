-- Asks `advisor serve` for the share of a job beside its partner, within a bounded time.

local HERE = debug.getinfo(1, "S").source:match("^@(.*/)")
local decode = dofile(HERE .. "json.lua")
local service = {}

local MOST_BYTES = 1048576
local quiet_until = 0 -- os.time() until which a service that was too slow is left alone

local VALID = {
  address = function(text)
    return text:find("^https?://[%w.:%[%]-]+$") or text:find("^unix:/[%w._/-]+$")
  end,
  timeout_s = function(text) return tonumber(text) and tonumber(text) > 0 and tonumber(text) <= 10 end,
  pause_s = function(text) return tonumber(text) and tonumber(text) >= 0 end,
  without_advice = function(text)
    return text == "pass" or text == "hold" or text:find("^[1-9]%d?$") or text == "100"
  end,
  mps_per_gpu = function(text) return text:find("^[1-9]%d*$") end,
  gpu_model = function(text) return text:find("^[%w ._-]+$") end,
}

-- The settings in advisor.conf, texts by name. Raises an error for one that is missing or not valid.
function service.read_site()
  local file = io.open(HERE .. "advisor.conf") or error("there is no " .. HERE .. "advisor.conf", 0)
  local site = {}
  for line in file:lines() do
    local name, text = line:match("^%s*([%w_]+)%s*=%s*(.-)%s*$")
    if name then site[name] = text end
  end
  file:close()
  for name, valid in pairs(VALID) do
    if not (valid(site[name] or "") or name == "gpu_model" and not site[name]) then
      error("advisor.conf: " .. name .. " = " .. (site[name] or "") .. " is not valid", 0)
    end
  end
  return site
end

-- Names and settings stand in a shell's command: both are checked, and have no quotes.
local function command_for(site, names)
  local socket = site.address:match("^unix:(.*)$")
  local model = site.gpu_model and ',"gpu_model":"' .. site.gpu_model .. '"' or ""
  local body = '{"jobs":[{"job":"' .. names.job .. '"},{"job":"' .. names.partner .. '"}]' .. model .. "}"
  return table.concat({
    "timeout -s KILL " .. site.timeout_s + 0.5, -- for what curl's own limit does not end
    "curl -q -sS --noproxy '*' --max-time " .. site.timeout_s,
    socket and "--unix-socket '" .. socket .. "'" or "",
    "-H 'Content-Type: application/json' -w '\\n%{http_code}' -d '" .. body .. "'",
    "'" .. (socket and "http://localhost" or site.address) .. "/v1/recommendations' 2>&1",
  }, " ")
end

local function exchange(site, names)
  if os.time() < quiet_until then
    error("the service was too slow less than " .. site.pause_s .. " s ago", 0)
  end
  local pipe = io.popen(command_for(site, names))
  local answer = pipe:read(MOST_BYTES) or ""
  pipe:close()
  local failure = answer:match("curl: [^\n]*") or answer == "" and "curl was ended"
  if failure and (failure:find("curl: (28)", 1, true) or answer == "") then
    quiet_until = os.time() + tonumber(site.pause_s)
  end
  local text, status = answer:match("^(.*)\n(%d%d%d)%s*$")
  if failure or not status then
    error("no answer from " .. site.address .. ": " .. (failure or "it is too long"), 0)
  end
  return text, status
end

-- The part of a GPU that each of a pair may be counted with: at most 100 together, although shares of
-- whole SMs such as 11/90 add up to more. Both jobs come to the same parts, whichever asks first.
local function counted_percent(mine, other)
  return math.max(1, math.floor(mine * 100 / math.max(100, mine + other)))
end

local function is_share(percent)
  return type(percent) == "number" and percent > 0 and percent <= 100
end

local function share_in(answer, names)
  local choice = answer.choice
  local mine, other = choice.jobs[1], choice.jobs[2]
  if mine.job ~= names.job or other.job ~= names.partner
    or not is_share(mine.share_percent) or not is_share(other.share_percent) then
    error("it is about something else", 0)
  end
  if choice.sharing == "limited" or choice.sharing == "uncapped" then
    local counted = counted_percent(mine.share_percent, other.share_percent)
    local why = "beside " .. names.partner .. ", split " .. choice.split
    return { percent = mine.share_percent, counted_percent = counted, why = why }
  elseif choice.sharing == "exclusive" or choice.sharing == "time-sliced" then
    local why = choice.sharing .. " is better for " .. names.job .. " and " .. names.partner
    return { percent = 100, counted_percent = 100, why = why }
  end
  error("sharing " .. tostring(choice.sharing) .. " is not known", 0)
end

-- What the first of two jobs gets: `percent` of the SMs, `counted_percent` of the GPU in Slurm's books,
-- and `why`. Raises an error with the reason where there is no advice.
function service.share(site, names)
  local text, status = exchange(site, names)
  local read, answer = pcall(decode, text)
  if not read or type(answer) ~= "table" then
    error("the service answered " .. status .. " with something that is not a JSON object", 0)
  end
  if status ~= "200" then
    local problem = type(answer.error) == "table" and answer.error or {}
    if problem.code == "no-split" then
      return { percent = 100, counted_percent = 100, why = tostring(problem.message) }
    end
    error("the service answered " .. status .. ": " .. tostring(problem.message), 0)
  end
  local found, share = pcall(share_in, answer, names)
  if not found then error("the answer cannot be used: " .. tostring(share), 0) end
  return share
end

return service
