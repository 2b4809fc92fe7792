-- In this order: deleted, not yet seen by the operator, failed, suspended, complete, under way.
local function health(status, message)
  return { status = status, message = message or "" }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "the job is being deleted")
end

local status = obj.status or {}
if status.observedGeneration == nil then
  local manager = obj.spec.managedBy or ""
  return health("Progressing", "waiting for " .. (manager ~= "" and manager or "the operator"))
end
-- The status of a job in another cluster (MultiKueue) counts the generations of the object there.
local here = (obj.spec.managedBy or "elasticjob") == "elasticjob"
if here and obj.metadata.generation ~= nil and status.observedGeneration < obj.metadata.generation then
  return health("Progressing", "waiting for the operator to see the newest spec")
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local function is(type, value)
  return conditions[type] ~= nil and conditions[type].status == value
end

if is("Failed", "True") then
  local failed = conditions.Failed
  return health("Degraded", (failed.reason or "Failed") .. ": " .. (failed.message or ""))
end
if is("Suspended", "True") then
  local waits = is("Admitted", "False") and conditions.Admitted.reason ~= "Suspended" -- in a queue of Kueue
  return health("Suspended", waits and conditions.Admitted.message or conditions.Suspended.message)
end
if is("Complete", "True") then
  return health("Healthy", conditions.Complete.message)
end

if is("Created", "False") then
  return health("Progressing", conditions.Created.message)
end
if is("Suspended", "False") and conditions.Suspended.reason == "Suspending" then
  return health("Progressing", conditions.Suspended.message)
end
for _, type in ipairs({ "Restarting", "Scaling" }) do
  if is(type, "True") then
    return health("Progressing", conditions[type].message)
  end
end
if is("Gang", "False") and is("Running", "False") then
  return health("Progressing", conditions.Gang.message)
end
if conditions.Running ~= nil then
  return health("Progressing", conditions.Running.message)
end
return health("Progressing", "the job is accepted")
