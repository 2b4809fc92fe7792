-- In this order: deleted, ended, refused, not yet seen by the operator, under way.
-- The status of a job that has ended stays as it is, whatever is written into its spec.
local function health(status, message)
  return { status = status, message = message or "" }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "the job is being deleted")
end

local status = obj.status or {}
local reason = status.reason or ""
if status.phase == "failed" then
  return health("Degraded", reason)
end
if status.phase == "succeeded" then
  return health("Healthy", "the job has succeeded")
end
if status.phase == nil then
  return health("Progressing", "waiting for the operator")
end
if status.phase == "none" and status.observedGeneration == nil and reason ~= "" then
  return health("Degraded", reason)
end
if status.observedGeneration == nil
  or (obj.metadata.generation ~= nil and status.observedGeneration < obj.metadata.generation) then
  return health("Progressing", reason ~= "" and reason or "waiting for the operator to see the newest spec")
end
if status.phase == "none" then
  return health("Suspended", reason ~= "" and reason or "the ElasticJob of this name is suspended")
end

local message = status.phase
if (status.trainers or "") ~= "" then
  message = message .. ", trainers " .. status.trainers
end
if reason ~= "" then
  message = message .. ": " .. reason
end
return health("Progressing", message)
