-- A job that has ended does not start again: a new one with its spec does, and goes on from the last
-- checkpoint. It belongs to the failed job, so Argo CD shows it below that job, and deletes it with it.
-- The name is that of the first job and a number, so pressing the button twice makes one job.
local NUMBER = "elasticjob.dlrover/retry"
local FIRST = "elasticjob.dlrover/retry-of"
local FRAMEWORK = "elasticjob.dlrover/framework"

-- Argo CD writes an empty table as a list. So empty tables are left out, and tables of nothing else, but for
-- those that mean something: they say the same in a field.
local MEANT = {
  emptyDir = { medium = "" },
  labelSelector = { matchExpressions = {} },
  namespaceSelector = { matchExpressions = {} },
  parameter_server = { image = "" },
  parameterServer = { image = "" },
  worker = { image = "" },
  evaluator = { image = "" },
}
local function copied(value, key)
  if type(value) ~= "table" then
    return value
  end
  local found = {}
  for _, item in ipairs(value) do
    found[#found + 1] = copied(item)
  end
  for name, item in pairs(#value == 0 and value or {}) do
    found[name] = copied(item, name)
  end
  return next(found) ~= nil and found or MEANT[key]
end

local annotations = obj.metadata.annotations or {}
local first = annotations[FIRST] or obj.metadata.name
local number = tonumber(annotations[NUMBER] or "0") + 1

local job = { apiVersion = obj.apiVersion, kind = obj.kind, spec = copied(obj.spec) }
job.spec.suspend = false
job.metadata = {
  name = first .. "-retry-" .. number,
  namespace = obj.metadata.namespace,
  annotations = { [FIRST] = first, [NUMBER] = tostring(number), [FRAMEWORK] = annotations[FRAMEWORK] },
}
-- A job that is deleted some time after its end would take the new one with it, which may train by then.
if (obj.spec.runPolicy or {}).ttlSecondsAfterFinished == nil then
  job.metadata.ownerReferences = {
    { apiVersion = obj.apiVersion, kind = obj.kind, name = obj.metadata.name, uid = obj.metadata.uid },
  }
end
-- The labels of the user, without the mark by which Argo CD would take the new job for one of git.
for name, value in pairs(obj.metadata.labels or {}) do
  if name ~= "app.kubernetes.io/instance" and name ~= "argocd.argoproj.io/instance" then
    job.metadata.labels = job.metadata.labels or {}
    job.metadata.labels[name] = value
  end
end
return { { operation = "create", resource = job } }
