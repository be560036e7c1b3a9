-- Lets a named job wait for partners on its GPU, as `advisor slurm match` decides. It sends no
-- request: slurmctld takes no other submission while a plugin runs. docs/slurm.md.

local HERE = debug.getinfo(1, "S").source:match("^@(.*/)")
local advisor = {}

local NAME = "^[%l%d][%l%d._-]*$" -- of a job
local NUMBER = "^%d+%.?%d*$"
local ASKED = { job = NAME, with = NAME, p99 = NUMBER, speed = NUMBER }
local NO_COUNT, NO_SIZE = 65534, 1.8e19 -- as slurmctld has it, from which on nothing is said
local MOST_CHARACTERS = 300 -- of a reason
local MOST_SILENCE_S = 30 -- of `advisor slurm match`

local function is_set(text)
  return text ~= nil and text ~= ""
end

-- `name = text` of each line of a file.
local function read_lines(path)
  local file = io.open(path)
  if not file then return nil end
  local found = {}
  for line in file:lines() do
    local name, text = line:match("^%s*([^#=%s]+)%s*=%s*(.-)%s*$")
    if name then found[name] = text end
  end
  file:close()
  return found
end

-- What the site has said, and what `advisor slurm match` knows of it.
local function read_site()
  local site = read_lines(HERE .. "advisor.conf") or error("there is no " .. HERE .. "advisor.conf", 0)
  site.facts = read_lines(site.facts or "") or {}
  return site
end

-- Where in a comment a word `advisor:...` is: before it, the word's text, behind it.
local function word_in(comment)
  local first, last = (" " .. comment):lower():find("[%s;]advisor:[^%s;]*")
  if not first then return nil end
  return comment:sub(1, first - 1), comment:sub(first + #"advisor:", last - 1), comment:sub(last)
end

-- What a user may say; a share is not his to say. Raises an error.
local function check_word(text)
  local seen = {}
  for part in (text .. ","):gmatch("([^,]*),") do
    local key, value = part:match("^(%l[%l%d]*)=(.*)$")
    if seen[key or 0] or not (ASKED[key or 0] and value:find(ASKED[key])) then
      error("advisor:" .. text .. " is not advisor:job=NAME, with ,p99=MS or ,speed=0.6 behind it", 0)
    end
    seen[key] = true
  end
  if not seen.job then error("advisor:" .. text .. " names no job", 0) end
end

-- `gres:` or `gres/`, as this version of Slurm writes it, where a text asks for one GPU; and its type, if any.
local function prefix_of_one_gpu(text)
  local prefix, rest = text:match("^(gres[:/])gpu[:=]?([^,]*)$")
  local count = rest and (rest:match("^(%d+)$") or rest:match("[:=](%d+)$")) or "1"
  local of_type = rest and not rest:find("^%d+$") and rest:match("^([^:=]+)") or nil
  if count == "1" then return prefix, of_type end
end

-- The prefix of a job's request, and its type of GPU. Raises an error with the reason why the job is left as it is.
local function request_of(job)
  local asked = is_set(job.tres_per_node) and job.tres_per_node or job.tres_per_job
  local otherwise = (job.tres_per_task or "") .. (job.tres_per_socket or "")
  local why
  if not is_set(asked) or otherwise:find("gpu") then
    why = "it does not ask for a GPU by --gres or --gpus alone"
  elseif is_set(job.tres_per_node) and is_set(job.tres_per_job) then
    why = "it asks for GPUs twice, " .. job.tres_per_node .. " and " .. job.tres_per_job
  elseif job.het_job_offset and job.het_job_offset ~= slurm.NO_VAL then
    why = "it is a part of a heterogeneous job"
  elseif job.script == nil then
    why = "only batch jobs are rewritten: steps of srun and salloc keep the old request"
  elseif job.min_nodes and job.min_nodes ~= slurm.NO_VAL and job.min_nodes > 1 then
    why = "it runs on several nodes"
  elseif job.shared == 0 then
    why = "it asks for whole nodes (--exclusive)"
  elseif is_set(job.req_nodes) then
    why = "it names its node"
  elseif is_set(job.tres_bind) or is_set(job.tres_freq) or (job.ntasks_per_tres or NO_COUNT) < NO_COUNT then
    why = "it binds tasks to GPUs, or sets their clock"
  end
  if why then error(why, 0) end
  local prefix, of_type = prefix_of_one_gpu(asked)
  return prefix or error(asked .. " is not one GPU", 0), of_type
end

-- What this partition has by default for a GPU. Raises an error where its jobs are not to be rewritten, or
-- the type would be lost: gres/mps has none, so all GPUs of the partition must be of it.
local function defaults_of(job, facts, of_type)
  local partition = is_set(job.partition) and job.partition or facts.default or ""
  local known = facts["partition." .. partition]
  if not known then error("nothing is known of partition " .. partition, 0) end
  if known:find("^no ") then error("in partition " .. partition .. " " .. known:sub(4), 0) end
  local types = known:match("types=(%S+)") or "none"
  if of_type and types ~= of_type then
    error("it asks for " .. of_type .. ", and partition " .. partition .. " has GPUs of type " .. types, 0)
  end
  return tonumber(known:match("cpus=(%d+)")), tonumber(known:match("mib=(%d+)"))
end

-- CPUs and memory that come with a GPU are asked for as they are: a job with gres/mps has no GPU.
local function keep_what_a_gpu_brings(job, cpus, mib)
  local asked_cpus = tonumber((job.cpus_per_tres or ""):match("gpu[:=](%d+)$"))
  local asked_mib = tonumber((job.mem_per_tres or ""):match("gpu[:=](%d+)$"))
  local tasks = job.num_tasks or slurm.NO_VAL
  if is_set(job.cpus_per_tres) and not asked_cpus or is_set(job.mem_per_tres) and not asked_mib then
    error("CPUs or memory for each GPU are asked for in a form that is not known", 0)
  end
  local says_cpus = (job.cpus_per_task or NO_COUNT) < NO_COUNT or (job.min_cpus or 1) > 1
  cpus = asked_cpus or not says_cpus and cpus or nil
  if cpus and tasks ~= slurm.NO_VAL and tasks > 1 then
    if asked_cpus then error("CPUs for each GPU and several tasks stay together", 0) end
    cpus = nil
  end
  mib = asked_mib or (job.pn_min_memory or NO_SIZE) >= NO_SIZE and mib or nil
  return function()
    if asked_cpus then job.cpus_per_tres = "" end
    if asked_mib then job.mem_per_tres = "" end
    if cpus then job.cpus_per_task, job.min_cpus = cpus, cpus end
    if mib then job.min_mem_per_node = mib end
  end
end

-- The comment of a job is in it, and administrators read it: nothing that a terminal obeys.
local function say(job, text)
  text = "advisor: " .. text:gsub("[^ -~]", "?"):sub(1, MOST_CHARACTERS)
  job.admin_comment = text
  slurm.log_user("%s", text)
end

local function is_heard(facts)
  return os.time() - (tonumber(facts.written_at) or 0) <= MOST_SILENCE_S
end

-- A whole GPU in Slurm's books of gres/mps, of which `advisor slurm match` may leave a part; it starts as
-- that where nothing was decided in time.
local function rewrite(job)
  local prefix, of_type = request_of(job)
  local site = read_site()
  local facts = site.facts
  local heard = is_heard(facts)
  if not heard and site.without_advice ~= "whole" then
    error("`advisor slurm match` does not run on the controller", 0)
  elseif facts.books ~= "ok" then
    error(facts.books or "nothing is known of the books", 0)
  end
  local bring = keep_what_a_gpu_brings(job, defaults_of(job, facts, of_type))
  bring()
  if is_set(job.tres_per_job) then job.tres_per_job = "" end
  job.tres_per_node = prefix .. "mps:100"
  if not heard then return "a whole GPU: `advisor slurm match` does not run on the controller" end
  local wait_s = tonumber(facts.wait_s) or 0
  job.begin_time = math.max(os.time(), job.begin_time or 0) + wait_s
  return "waits " .. wait_s .. " s at most for a partner, then for a whole GPU"
end

-- Changes a job whose comment has `advisor:...`, and leaves all others alone. Never raises an error: a
-- plugin that fails would stop submissions.
function advisor.submit(job)
  local before, word, behind = word_in(job.comment or "")
  if not word then return end
  local meant, wrong = pcall(check_word, word)
  job.comment = before .. (meant and "advisor:" .. word or "") .. behind
  if not meant then return say(job, "unchanged: " .. tostring(wrong)) end
  local done, text = pcall(rewrite, job)
  say(job, done and text or "unchanged: " .. tostring(text))
end

-- Whether a change of a job may be made: what was decided for it is not its user's to change.
function advisor.may_modify(job, recorded, uid)
  local done, facts = pcall(function() return read_site().facts end)
  if uid == 0 or done and uid == tonumber(facts.user) then return true end
  local ours = word_in(recorded.comment or "")
  if ours == nil then return word_in(job.comment or "") == nil end
  return not (job.comment or is_set(job.tres_per_node) or is_set(job.tres_per_job))
end

return advisor
