-- In this order: deleted, not yet seen by the operator, in a queue of Kueue, failed, succeeded, under way.
-- The status has no observedGeneration: the coordinator's pod alone moves the phase.
local function health(status, message)
  return { status = status, message = message or "" }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "the job is being deleted")
end

local status = obj.status or {}
local phase = status.phase or ""
if phase == "" then
  return health("Progressing", "waiting for the operator")
end

for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Admitted" and condition.status == "False" and phase == "Created" then
    return health("Suspended", condition.message)
  end
end

local message = ""
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == phase then
    message = condition.message or ""
  end
end

local results = { Failed = "Degraded", Succeeded = "Healthy", Unknown = "Unknown" }
return health(results[phase] or "Progressing", message)
