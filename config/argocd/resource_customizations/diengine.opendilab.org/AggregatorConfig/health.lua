-- A template: there is nothing to wait for.
if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = "the template is being deleted" }
end
return { status = "Healthy", message = "" }
