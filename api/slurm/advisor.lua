-- Rewrites a job that names itself to the part of a GPU that advisor recommends. docs/slurm.md.

local HERE = debug.getinfo(1, "S").source:match("^@(.*/)")
local service = dofile(HERE .. "service.lua")
local advisor = {}

local NAME = "([%w][%w._-]*)" -- of a job; what may stand in a shell's command
local MOST_CHARACTERS = 300   -- of a reason

-- The names in a comment such as `advisor:job=A,with=B`; without `with`, the partner is another A.
local function names_in(text)
  local job, partner = text:match("^job=" .. NAME .. ",with=" .. NAME .. "$")
  job = job or text:match("^job=" .. NAME .. "$")
  if not job then
    error("advisor:" .. text .. " is not advisor:job=NAME or advisor:job=NAME,with=NAME", 0)
  end
  return { job = job, partner = partner or job }
end

local function is_set(text)
  return text ~= nil and text ~= ""
end

-- `gres:` or `gres/`, as this version of Slurm writes it, where a text asks for one GPU or a part of one.
local function prefix_of_one_gpu(text)
  local prefix, name, rest = text:match("^(gres[:/])(%a+)[:=]?([^,]*)$")
  local count = rest and (rest:match("^(%d+)$") or rest:match("[:=](%d+)$")) or "1"
  return (name == "mps" or name == "gpu" and count == "1") and prefix or nil
end

-- The prefix of a job's request, or nil and the reason why the job is left as it is.
local function request_of(job)
  local asked = is_set(job.tres_per_node) and job.tres_per_node or job.tres_per_job
  local otherwise = (job.tres_per_task or "") .. (job.tres_per_socket or "")
  if not is_set(asked) or otherwise:find("gpu") then
    return nil, "it asks for no GPU by --gres or --gpus alone"
  elseif is_set(job.tres_per_node) and is_set(job.tres_per_job) then
    return nil, "it asks for GPUs twice, " .. job.tres_per_node .. " and " .. job.tres_per_job
  elseif job.script == nil then
    return nil, "only batch jobs are rewritten: steps of srun and salloc keep the old request"
  elseif job.min_nodes and job.min_nodes ~= slurm.NO_VAL and job.min_nodes > 1 then
    return nil, "it runs on several nodes"
  end
  return prefix_of_one_gpu(asked), asked .. " is not one GPU or a part of one"
end

local function say(job, text)
  text = "advisor: " .. text:gsub("%c", " "):sub(1, MOST_CHARACTERS)
  job.admin_comment = text
  slurm.log_user("%s", text)
end

-- Slurm counts with gres/mps; the exact share goes to the TaskProlog.
local function give(job, prefix, site, share)
  if is_set(job.tres_per_job) then job.tres_per_job = "" end
  local count = math.max(1, math.floor(share.counted_percent * site.mps_per_gpu / 100))
  job.tres_per_node = string.format("%smps:%d", prefix, count)
  job.environment.ADVISOR_SHARE_PERCENT = string.format("%.14g", share.percent)
end

local function go_on_without(job, prefix, site, why)
  local policy = site and site.without_advice or "pass"
  local percent = tonumber(policy)
  if percent then
    give(job, prefix, site, { percent = percent, counted_percent = percent })
    say(job, policy .. " % of a GPU, the default of the site, without advice: " .. why)
  elseif policy == "hold" then
    job.priority = 0
    say(job, "held without advice: " .. why)
  else
    say(job, "unchanged, without advice: " .. why)
  end
end

-- Rewrites a job whose comment has `advisor:...`, and leaves all others alone. Never raises an error: a
-- plugin that fails would stop submissions.
function advisor.submit(job)
  local named = (" " .. (job.comment or "")):match("%sadvisor:(%S*)")
  if not named then return end
  local prefix, unsuitable = request_of(job)
  if not prefix then return say(job, "unchanged: " .. unsuitable) end
  local site
  local advised, why = pcall(function()
    site = service.read_site()
    local share = service.share(site, names_in(named))
    give(job, prefix, site, share)
    say(job, string.format("%.14g %% of a GPU: %s", share.percent, share.why))
  end)
  if not advised then go_on_without(job, prefix, site, tostring(why)) end
end

return advisor
