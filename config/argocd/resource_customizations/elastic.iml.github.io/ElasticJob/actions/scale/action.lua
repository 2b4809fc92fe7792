-- What `kubectl scale --replicas` writes. The numbers are checked here too: Argo CD shows the message of an
-- error as it is.
local given = actionParams["replicas"]
local replicas = tonumber(given)
if replicas == nil or replicas < 0 or replicas % 1 ~= 0 then
  error("replicas: '" .. tostring(given) .. "' is no number of workers: write 0 or more", 0)
end

obj.spec.replicaSpecs = obj.spec.replicaSpecs or {}
obj.spec.replicaSpecs.worker = obj.spec.replicaSpecs.worker or {}
local worker = obj.spec.replicaSpecs.worker
if worker.minReplicas ~= nil and replicas < worker.minReplicas then
  error("replicas: " .. replicas .. " is less than minReplicas, " .. worker.minReplicas, 0)
end
if worker.maxReplicas ~= nil and replicas > worker.maxReplicas then
  error("replicas: " .. replicas .. " is more than maxReplicas, " .. worker.maxReplicas, 0)
end
if replicas == 0 and worker.minReplicas == nil then
  error("replicas: 0 leaves the number to the optimizer: suspend the job to stop it", 0)
end
worker.replicas = replicas
return obj
