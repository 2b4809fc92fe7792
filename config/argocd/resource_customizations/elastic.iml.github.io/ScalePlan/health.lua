-- In this order: deleted, not yet seen by the operator, failed, carried out or superseded, under way.
local function health(status, message)
  return { status = status, message = message or "" }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "the plan is being deleted")
end

local status = obj.status or {}
if status.observedGeneration == nil then
  return health("Progressing", "waiting for the operator")
end
if obj.metadata.generation ~= nil and status.observedGeneration < obj.metadata.generation then
  return health("Progressing", "waiting for the operator to see the newest spec")
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local function is(type)
  return conditions[type] ~= nil and conditions[type].status == "True"
end

if is("Failed") then
  local failed = conditions.Failed
  return health("Degraded", (failed.reason or "Failed") .. ": " .. (failed.message or ""))
end
for _, type in ipairs({ "Superseded", "Complete" }) do
  if is(type) then
    return health("Healthy", conditions[type].message)
  end
end
return health("Progressing", conditions.Complete and conditions.Complete.message or "the plan waits")
