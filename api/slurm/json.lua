-- Reads JSON (RFC 8259): objects and lists become tables, null becomes nil. Raises an error for
-- anything else. Characters that are escaped as \uXXXX become a question mark.

local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local WORDS = { ["true"] = true, ["false"] = false }
local value

local function next_mark(text, at)
  return text:find("%S", at) or #text + 1
end

local function expect(text, at, mark)
  if text:sub(at, at) ~= mark then
    error("not JSON: " .. mark .. " is missing at " .. at, 0)
  end
  return next_mark(text, at + 1)
end

local function unescape(raw)
  return (raw:gsub("\\(.)(%x?%x?%x?%x?)", function(mark, hex)
    return mark == "u" and "?" or (ESCAPES[mark] or mark) .. hex
  end))
end

local function text_at(text, at)
  local ends = at + 1
  while true do
    local stop = text:find('["\\]', ends)
    if not stop then
      error("not JSON: the text at " .. at .. " has no end", 0)
    elseif text:sub(stop, stop) == '"' then
      return unescape(text:sub(at + 1, stop - 1)), next_mark(text, stop + 1)
    end
    ends = stop + 2
  end
end

local function object_at(text, at)
  local found, key = {}, nil
  at = next_mark(text, at + 1)
  while text:sub(at, at) ~= "}" do
    if key then at = expect(text, at, ",") end
    expect(text, at, '"')
    key, at = text_at(text, at)
    at = expect(text, at, ":")
    found[key], at = value(text, at)
  end
  return found, next_mark(text, at + 1)
end

local function list_at(text, at)
  local found, count = {}, 0
  at = next_mark(text, at + 1)
  while text:sub(at, at) ~= "]" do
    if count > 0 then at = expect(text, at, ",") end
    count = count + 1
    found[count], at = value(text, at)
  end
  return found, next_mark(text, at + 1)
end

local function plain_at(text, at)
  local word = text:match("^[%w.+-]+", at) or ""
  local found = WORDS[word]
  if found == nil and word:find("^-?%d") then found = tonumber(word) end
  if found == nil and word ~= "null" then
    error("not JSON: nothing that can be read at " .. at, 0)
  end
  return found, next_mark(text, at + #word)
end

local READERS = { ["{"] = object_at, ["["] = list_at, ['"'] = text_at }

function value(text, at)
  return (READERS[text:sub(at, at)] or plain_at)(text, at)
end

return function(text)
  local found, at = value(text, next_mark(text, 1))
  if at <= #text then error("not JSON: it goes on at " .. at, 0) end
  return found
end
