local actions = {}
local ended, failed = false, false
for _, condition in ipairs(obj.status and obj.status.conditions or {}) do
  if condition.status == "True" and (condition.type == "Complete" or condition.type == "Failed") then
    ended = true
    failed = condition.type == "Failed"
  end
end

if obj.metadata.deletionTimestamp ~= nil then
  return actions
end
if failed then
  actions["retry"] = { ["iconClass"] = "fa fa-fw fa-redo", ["displayName"] = "Retry" }
end
if not ended then
  if obj.spec.suspend then
    actions["resume"] = { ["iconClass"] = "fa fa-fw fa-play", ["displayName"] = "Resume" }
  else
    actions["suspend"] = { ["iconClass"] = "fa fa-fw fa-pause", ["displayName"] = "Suspend" }
  end
  local roles = obj.spec.replicaSpecs or {}
  if roles.worker ~= nil or obj.spec.worker ~= nil then
    actions["scale"] = {
      ["iconClass"] = "fa fa-fw fa-expand",
      ["displayName"] = "Scale workers",
      ["params"] = { { ["name"] = "replicas" } },
    }
  end
end
return actions
