local actions = {}
if obj.metadata.deletionTimestamp == nil and obj.status ~= nil and obj.status.phase == "failed" then
  actions["retry"] = { ["iconClass"] = "fa fa-fw fa-redo", ["displayName"] = "Retry" }
end
return actions
