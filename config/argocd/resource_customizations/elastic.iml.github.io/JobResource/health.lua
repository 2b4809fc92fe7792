-- In this order: deleted, not yet seen by the operator, suspended, ready, failed for good, under way.
local function health(status, message)
  return { status = status, message = message or "" }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "the nodes are being deleted")
end

local status = obj.status or {}
local ready = nil
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then
    ready = condition
  end
end
if ready == nil then
  return health("Progressing", "waiting for the operator")
end
-- A JobResource of another name than its job's is a request: until it is carried out, the condition alone
-- says for which generation it was written.
local seen = status.observedGeneration or ready.observedGeneration
if seen == nil or (obj.metadata.generation ~= nil and seen < obj.metadata.generation) then
  return health("Progressing", "waiting for the operator to see the newest spec")
end

if ready.status == "True" or ready.reason == "Finished" then
  return health("Healthy", ready.message)
end
if ready.reason == "Suspended" or (obj.spec.suspend and ready.reason == "Leaving") then
  return health("Suspended", ready.message)
end

-- Nodes that are not replaced, a job that has failed, and requests that cannot be met.
local final = {
  PodFailurePolicy = true,
  CannotStart = true,
  OutOfMemory = true,
  RestartsSpent = true,
  PodFailed = true,
  Failed = true,
  Refused = true,
  Impossible = true,
}
if final[ready.reason] then
  return health("Degraded", ready.reason .. ": " .. (ready.message or ""))
end
return health("Progressing", ready.message)
