"""Pydantic models of PodTemplateSpec and its parts, made by `make generate`; do not edit."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel


class Model(RootModel[Any]):
    root: Any


class AWSElasticBlockStoreVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    partition: int | None = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    volume_id: Annotated[str, Field(alias='volumeID')]


class AppArmorProfile(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    localhost_profile: Annotated[str | None, Field(alias='localhostProfile')] = None
    type: str


class AzureDiskVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    caching_mode: Annotated[str | None, Field(alias='cachingMode')] = None
    disk_name: Annotated[str, Field(alias='diskName')]
    disk_uri: Annotated[str, Field(alias='diskURI')]
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    kind: str | None = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None


class AzureFileVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    secret_name: Annotated[str, Field(alias='secretName')]
    share_name: Annotated[str, Field(alias='shareName')]


class Capabilities(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    add: list[str] | None = None
    drop: list[str] | None = None


class ConfigMapEnvSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str | None = None
    optional: bool | None = None


class ConfigMapKeySelector(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    key: str
    name: str | None = None
    optional: bool | None = None


class ContainerPort(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    container_port: Annotated[int, Field(alias='containerPort')]
    host_ip: Annotated[str | None, Field(alias='hostIP')] = None
    host_port: Annotated[int | None, Field(alias='hostPort')] = None
    name: str | None = None
    protocol: str | None = None


class ContainerResizePolicy(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    resource_name: Annotated[str, Field(alias='resourceName')]
    restart_policy: Annotated[str, Field(alias='restartPolicy')]


class ContainerRestartRuleOnExitCodes(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    operator: str
    values: list[int] | None = None


class ExecAction(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    command: list[str] | None = None


class FCVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    lun: int | None = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    target_ww_ns: Annotated[list[str] | None, Field(alias='targetWWNs')] = None
    wwids: list[str] | None = None


class FieldsV1(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )


class FileKeySelector(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    key: str
    optional: bool | None = None
    path: str
    volume_name: Annotated[str, Field(alias='volumeName')]


class FlockerVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    dataset_name: Annotated[str | None, Field(alias='datasetName')] = None
    dataset_uuid: Annotated[str | None, Field(alias='datasetUUID')] = None


class GCEPersistentDiskVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    partition: int | None = None
    pd_name: Annotated[str, Field(alias='pdName')]
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None


class GRPCAction(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    port: int
    service: str | None = None


class GitRepoVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    directory: str | None = None
    repository: str
    revision: str | None = None


class GlusterfsVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    endpoints: str
    path: str
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None


class HTTPHeader(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str
    value: str


class HostAlias(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    hostnames: list[str] | None = None
    ip: str


class HostPathVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    path: str
    type: str | None = None


class ImageVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    pull_policy: Annotated[str | None, Field(alias='pullPolicy')] = None
    reference: str | None = None


class KeyToPath(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    key: str
    mode: int | None = None
    path: str


class LabelSelectorRequirement(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    key: str
    operator: str
    values: list[str] | None = None


class LocalObjectReference(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str | None = None


class NFSVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    path: str
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    server: str


class NodeSelectorRequirement(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    match_expressions: Annotated[
        list[NodeSelectorRequirement] | None, Field(alias='matchExpressions')
    ] = None
    match_fields: Annotated[
        list[NodeSelectorRequirement] | None, Field(alias='matchFields')
    ] = None


class ObjectFieldSelector(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    api_version: Annotated[str | None, Field(alias='apiVersion')] = None
    field_path: Annotated[str, Field(alias='fieldPath')]


class OwnerReference(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    api_version: Annotated[str, Field(alias='apiVersion')]
    block_owner_deletion: Annotated[bool | None, Field(alias='blockOwnerDeletion')] = (
        None
    )
    controller: bool | None = None
    kind: str
    name: str
    uid: str


class PersistentVolumeClaimVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    claim_name: Annotated[str, Field(alias='claimName')]
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None


class PhotonPersistentDiskVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    pd_id: Annotated[str, Field(alias='pdID')]


class PodCertificateProjection(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    certificate_chain_path: Annotated[
        str | None, Field(alias='certificateChainPath')
    ] = None
    credential_bundle_path: Annotated[
        str | None, Field(alias='credentialBundlePath')
    ] = None
    key_path: Annotated[str | None, Field(alias='keyPath')] = None
    key_type: Annotated[str, Field(alias='keyType')]
    max_expiration_seconds: Annotated[
        int | None, Field(alias='maxExpirationSeconds')
    ] = None
    signer_name: Annotated[str, Field(alias='signerName')]
    user_annotations: Annotated[
        dict[str, str] | None, Field(alias='userAnnotations')
    ] = None


class PodDNSConfigOption(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str | None = None
    value: str | None = None


class PodOS(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str


class PodReadinessGate(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    condition_type: Annotated[str, Field(alias='conditionType')]


class PodResourceClaim(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str
    resource_claim_name: Annotated[str | None, Field(alias='resourceClaimName')] = None
    resource_claim_template_name: Annotated[
        str | None, Field(alias='resourceClaimTemplateName')
    ] = None


class PodSchedulingGate(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str


class PortworxVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    volume_id: Annotated[str, Field(alias='volumeID')]


class PreferredSchedulingTerm(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    preference: NodeSelectorTerm
    weight: int


class QuobyteVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    group: str | None = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    registry: str
    tenant: str | None = None
    user: str | None = None
    volume: str


class RBDVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    image: str
    keyring: str | None = None
    monitors: list[str]
    pool: str | None = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    secret_ref: Annotated[LocalObjectReference | None, Field(alias='secretRef')] = None
    user: str | None = None


class ResourceClaim(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str
    request: str | None = None


class ResourceFieldSelector(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    container_name: Annotated[str | None, Field(alias='containerName')] = None
    divisor: int | float | str | None = None
    resource: str


class ResourceRequirements(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    claims: list[ResourceClaim] | None = None
    limits: dict[str, int | float | str] | None = None
    requests: dict[str, int | float | str] | None = None


class SELinuxOptions(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    level: str | None = None
    role: str | None = None
    type: str | None = None
    user: str | None = None


class ScaleIOVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    gateway: str
    protection_domain: Annotated[str | None, Field(alias='protectionDomain')] = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    secret_ref: Annotated[LocalObjectReference, Field(alias='secretRef')]
    ssl_enabled: Annotated[bool | None, Field(alias='sslEnabled')] = None
    storage_mode: Annotated[str | None, Field(alias='storageMode')] = None
    storage_pool: Annotated[str | None, Field(alias='storagePool')] = None
    system: str
    volume_name: Annotated[str | None, Field(alias='volumeName')] = None


class SeccompProfile(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    localhost_profile: Annotated[str | None, Field(alias='localhostProfile')] = None
    type: str


class SecretEnvSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str | None = None
    optional: bool | None = None


class SecretKeySelector(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    key: str
    name: str | None = None
    optional: bool | None = None


class SecretProjection(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    items: list[KeyToPath] | None = None
    name: str | None = None
    optional: bool | None = None


class SecretVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    default_mode: Annotated[int | None, Field(alias='defaultMode')] = None
    items: list[KeyToPath] | None = None
    optional: bool | None = None
    secret_name: Annotated[str | None, Field(alias='secretName')] = None


class ServiceAccountTokenProjection(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    audience: str | None = None
    expiration_seconds: Annotated[int | None, Field(alias='expirationSeconds')] = None
    path: str


class SleepAction(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    seconds: int


class StorageOSVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    secret_ref: Annotated[LocalObjectReference | None, Field(alias='secretRef')] = None
    volume_name: Annotated[str | None, Field(alias='volumeName')] = None
    volume_namespace: Annotated[str | None, Field(alias='volumeNamespace')] = None


class Sysctl(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str
    value: str


class TCPSocketAction(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    host: str | None = None
    port: int | str


class Toleration(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    effect: str | None = None
    key: str | None = None
    operator: str | None = None
    toleration_seconds: Annotated[int | None, Field(alias='tolerationSeconds')] = None
    value: str | None = None


class TypedLocalObjectReference(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    api_group: Annotated[str | None, Field(alias='apiGroup')] = None
    kind: str
    name: str


class TypedObjectReference(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    api_group: Annotated[str | None, Field(alias='apiGroup')] = None
    kind: str
    name: str
    namespace: str | None = None


class VolumeDevice(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    device_path: Annotated[str, Field(alias='devicePath')]
    name: str


class VolumeMount(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    mount_path: Annotated[str, Field(alias='mountPath')]
    mount_propagation: Annotated[str | None, Field(alias='mountPropagation')] = None
    name: str
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    recursive_read_only: Annotated[str | None, Field(alias='recursiveReadOnly')] = None
    sub_path: Annotated[str | None, Field(alias='subPath')] = None
    sub_path_expr: Annotated[str | None, Field(alias='subPathExpr')] = None


class VolumeResourceRequirements(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    limits: dict[str, int | float | str] | None = None
    requests: dict[str, int | float | str] | None = None


class VsphereVirtualDiskVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    storage_policy_id: Annotated[str | None, Field(alias='storagePolicyID')] = None
    storage_policy_name: Annotated[str | None, Field(alias='storagePolicyName')] = None
    volume_path: Annotated[str, Field(alias='volumePath')]


class WindowsSecurityContextOptions(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    gmsa_credential_spec: Annotated[str | None, Field(alias='gmsaCredentialSpec')] = (
        None
    )
    gmsa_credential_spec_name: Annotated[
        str | None, Field(alias='gmsaCredentialSpecName')
    ] = None
    host_process: Annotated[bool | None, Field(alias='hostProcess')] = None
    run_as_user_name: Annotated[str | None, Field(alias='runAsUserName')] = None


class WorkloadReference(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str
    pod_group: Annotated[str, Field(alias='podGroup')]
    pod_group_replica_key: Annotated[str | None, Field(alias='podGroupReplicaKey')] = (
        None
    )


class CSIVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    driver: str
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    node_publish_secret_ref: Annotated[
        LocalObjectReference | None, Field(alias='nodePublishSecretRef')
    ] = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    volume_attributes: Annotated[
        dict[str, str] | None, Field(alias='volumeAttributes')
    ] = None


class CephFSVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    monitors: list[str]
    path: str | None = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    secret_file: Annotated[str | None, Field(alias='secretFile')] = None
    secret_ref: Annotated[LocalObjectReference | None, Field(alias='secretRef')] = None
    user: str | None = None


class CinderVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    secret_ref: Annotated[LocalObjectReference | None, Field(alias='secretRef')] = None
    volume_id: Annotated[str, Field(alias='volumeID')]


class Condition(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    last_transition_time: Annotated[str, Field(alias='lastTransitionTime')]
    message: str
    observed_generation: Annotated[int | None, Field(alias='observedGeneration')] = None
    reason: str
    status: str
    type: str


class ConfigMapProjection(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    items: list[KeyToPath] | None = None
    name: str | None = None
    optional: bool | None = None


class ConfigMapVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    default_mode: Annotated[int | None, Field(alias='defaultMode')] = None
    items: list[KeyToPath] | None = None
    name: str | None = None
    optional: bool | None = None


class ContainerRestartRule(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    action: str
    exit_codes: Annotated[
        ContainerRestartRuleOnExitCodes | None, Field(alias='exitCodes')
    ] = None


class DownwardAPIVolumeFile(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    field_ref: Annotated[ObjectFieldSelector | None, Field(alias='fieldRef')] = None
    mode: int | None = None
    path: str
    resource_field_ref: Annotated[
        ResourceFieldSelector | None, Field(alias='resourceFieldRef')
    ] = None


class DownwardAPIVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    default_mode: Annotated[int | None, Field(alias='defaultMode')] = None
    items: list[DownwardAPIVolumeFile] | None = None


class EmptyDirVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    medium: str | None = None
    size_limit: Annotated[int | float | str | None, Field(alias='sizeLimit')] = None


class EnvFromSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    config_map_ref: Annotated[
        ConfigMapEnvSource | None, Field(alias='configMapRef')
    ] = None
    prefix: str | None = None
    secret_ref: Annotated[SecretEnvSource | None, Field(alias='secretRef')] = None


class EnvVarSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    config_map_key_ref: Annotated[
        ConfigMapKeySelector | None, Field(alias='configMapKeyRef')
    ] = None
    field_ref: Annotated[ObjectFieldSelector | None, Field(alias='fieldRef')] = None
    file_key_ref: Annotated[FileKeySelector | None, Field(alias='fileKeyRef')] = None
    resource_field_ref: Annotated[
        ResourceFieldSelector | None, Field(alias='resourceFieldRef')
    ] = None
    secret_key_ref: Annotated[SecretKeySelector | None, Field(alias='secretKeyRef')] = (
        None
    )


class FlexVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    driver: str
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    options: dict[str, str] | None = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    secret_ref: Annotated[LocalObjectReference | None, Field(alias='secretRef')] = None


class HTTPGetAction(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    host: str | None = None
    http_headers: Annotated[list[HTTPHeader] | None, Field(alias='httpHeaders')] = None
    path: str | None = None
    port: int | str
    scheme: str | None = None


class ISCSIVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    chap_auth_discovery: Annotated[bool | None, Field(alias='chapAuthDiscovery')] = None
    chap_auth_session: Annotated[bool | None, Field(alias='chapAuthSession')] = None
    fs_type: Annotated[str | None, Field(alias='fsType')] = None
    initiator_name: Annotated[str | None, Field(alias='initiatorName')] = None
    iqn: str
    iscsi_interface: Annotated[str | None, Field(alias='iscsiInterface')] = None
    lun: int
    portals: list[str] | None = None
    read_only: Annotated[bool | None, Field(alias='readOnly')] = None
    secret_ref: Annotated[LocalObjectReference | None, Field(alias='secretRef')] = None
    target_portal: Annotated[str, Field(alias='targetPortal')]


class LabelSelector(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    match_expressions: Annotated[
        list[LabelSelectorRequirement] | None, Field(alias='matchExpressions')
    ] = None
    match_labels: Annotated[dict[str, str] | None, Field(alias='matchLabels')] = None


class LifecycleHandler(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    exec: ExecAction | None = None
    http_get: Annotated[HTTPGetAction | None, Field(alias='httpGet')] = None
    sleep: SleepAction | None = None
    tcp_socket: Annotated[TCPSocketAction | None, Field(alias='tcpSocket')] = None


class ManagedFieldsEntry(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    api_version: Annotated[str | None, Field(alias='apiVersion')] = None
    fields_type: Annotated[str | None, Field(alias='fieldsType')] = None
    fields_v1: Annotated[FieldsV1 | None, Field(alias='fieldsV1')] = None
    manager: str | None = None
    operation: str | None = None
    subresource: str | None = None
    time: str | None = None


class NodeSelector(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    node_selector_terms: Annotated[
        list[NodeSelectorTerm], Field(alias='nodeSelectorTerms')
    ]


class ObjectMeta(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    annotations: dict[str, str] | None = None
    creation_timestamp: Annotated[str | None, Field(alias='creationTimestamp')] = None
    deletion_grace_period_seconds: Annotated[
        int | None, Field(alias='deletionGracePeriodSeconds')
    ] = None
    deletion_timestamp: Annotated[str | None, Field(alias='deletionTimestamp')] = None
    finalizers: list[str] | None = None
    generate_name: Annotated[str | None, Field(alias='generateName')] = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    managed_fields: Annotated[
        list[ManagedFieldsEntry] | None, Field(alias='managedFields')
    ] = None
    name: str | None = None
    namespace: str | None = None
    owner_references: Annotated[
        list[OwnerReference] | None, Field(alias='ownerReferences')
    ] = None
    resource_version: Annotated[str | None, Field(alias='resourceVersion')] = None
    self_link: Annotated[str | None, Field(alias='selfLink')] = None
    uid: str | None = None


class PersistentVolumeClaimSpec(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    access_modes: Annotated[list[str] | None, Field(alias='accessModes')] = None
    data_source: Annotated[
        TypedLocalObjectReference | None, Field(alias='dataSource')
    ] = None
    data_source_ref: Annotated[
        TypedObjectReference | None, Field(alias='dataSourceRef')
    ] = None
    resources: VolumeResourceRequirements | None = None
    selector: LabelSelector | None = None
    storage_class_name: Annotated[str | None, Field(alias='storageClassName')] = None
    volume_attributes_class_name: Annotated[
        str | None, Field(alias='volumeAttributesClassName')
    ] = None
    volume_mode: Annotated[str | None, Field(alias='volumeMode')] = None
    volume_name: Annotated[str | None, Field(alias='volumeName')] = None


class PersistentVolumeClaimTemplate(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    metadata: ObjectMeta | None = None
    spec: PersistentVolumeClaimSpec


class PodAffinityTerm(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    label_selector: Annotated[LabelSelector | None, Field(alias='labelSelector')] = None
    match_label_keys: Annotated[list[str] | None, Field(alias='matchLabelKeys')] = None
    mismatch_label_keys: Annotated[
        list[str] | None, Field(alias='mismatchLabelKeys')
    ] = None
    namespace_selector: Annotated[
        LabelSelector | None, Field(alias='namespaceSelector')
    ] = None
    namespaces: list[str] | None = None
    topology_key: Annotated[str, Field(alias='topologyKey')]


class PodDNSConfig(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    nameservers: list[str] | None = None
    options: list[PodDNSConfigOption] | None = None
    searches: list[str] | None = None


class PodSecurityContext(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    app_armor_profile: Annotated[
        AppArmorProfile | None, Field(alias='appArmorProfile')
    ] = None
    fs_group: Annotated[int | None, Field(alias='fsGroup')] = None
    fs_group_change_policy: Annotated[
        str | None, Field(alias='fsGroupChangePolicy')
    ] = None
    run_as_group: Annotated[int | None, Field(alias='runAsGroup')] = None
    run_as_non_root: Annotated[bool | None, Field(alias='runAsNonRoot')] = None
    run_as_user: Annotated[int | None, Field(alias='runAsUser')] = None
    se_linux_change_policy: Annotated[
        str | None, Field(alias='seLinuxChangePolicy')
    ] = None
    se_linux_options: Annotated[
        SELinuxOptions | None, Field(alias='seLinuxOptions')
    ] = None
    seccomp_profile: Annotated[SeccompProfile | None, Field(alias='seccompProfile')] = (
        None
    )
    supplemental_groups: Annotated[
        list[int] | None, Field(alias='supplementalGroups')
    ] = None
    supplemental_groups_policy: Annotated[
        str | None, Field(alias='supplementalGroupsPolicy')
    ] = None
    sysctls: list[Sysctl] | None = None
    windows_options: Annotated[
        WindowsSecurityContextOptions | None, Field(alias='windowsOptions')
    ] = None


class Probe(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    exec: ExecAction | None = None
    failure_threshold: Annotated[int | None, Field(alias='failureThreshold')] = None
    grpc: GRPCAction | None = None
    http_get: Annotated[HTTPGetAction | None, Field(alias='httpGet')] = None
    initial_delay_seconds: Annotated[int | None, Field(alias='initialDelaySeconds')] = (
        None
    )
    period_seconds: Annotated[int | None, Field(alias='periodSeconds')] = None
    success_threshold: Annotated[int | None, Field(alias='successThreshold')] = None
    tcp_socket: Annotated[TCPSocketAction | None, Field(alias='tcpSocket')] = None
    termination_grace_period_seconds: Annotated[
        int | None, Field(alias='terminationGracePeriodSeconds')
    ] = None
    timeout_seconds: Annotated[int | None, Field(alias='timeoutSeconds')] = None


class SecurityContext(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    allow_privilege_escalation: Annotated[
        bool | None, Field(alias='allowPrivilegeEscalation')
    ] = None
    app_armor_profile: Annotated[
        AppArmorProfile | None, Field(alias='appArmorProfile')
    ] = None
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    proc_mount: Annotated[str | None, Field(alias='procMount')] = None
    read_only_root_filesystem: Annotated[
        bool | None, Field(alias='readOnlyRootFilesystem')
    ] = None
    run_as_group: Annotated[int | None, Field(alias='runAsGroup')] = None
    run_as_non_root: Annotated[bool | None, Field(alias='runAsNonRoot')] = None
    run_as_user: Annotated[int | None, Field(alias='runAsUser')] = None
    se_linux_options: Annotated[
        SELinuxOptions | None, Field(alias='seLinuxOptions')
    ] = None
    seccomp_profile: Annotated[SeccompProfile | None, Field(alias='seccompProfile')] = (
        None
    )
    windows_options: Annotated[
        WindowsSecurityContextOptions | None, Field(alias='windowsOptions')
    ] = None


class TopologySpreadConstraint(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    label_selector: Annotated[LabelSelector | None, Field(alias='labelSelector')] = None
    match_label_keys: Annotated[list[str] | None, Field(alias='matchLabelKeys')] = None
    max_skew: Annotated[int, Field(alias='maxSkew')]
    min_domains: Annotated[int | None, Field(alias='minDomains')] = None
    node_affinity_policy: Annotated[str | None, Field(alias='nodeAffinityPolicy')] = (
        None
    )
    node_taints_policy: Annotated[str | None, Field(alias='nodeTaintsPolicy')] = None
    topology_key: Annotated[str, Field(alias='topologyKey')]
    when_unsatisfiable: Annotated[str, Field(alias='whenUnsatisfiable')]


class WeightedPodAffinityTerm(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    pod_affinity_term: Annotated[PodAffinityTerm, Field(alias='podAffinityTerm')]
    weight: int


class ClusterTrustBundleProjection(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    label_selector: Annotated[LabelSelector | None, Field(alias='labelSelector')] = None
    name: str | None = None
    optional: bool | None = None
    path: str
    signer_name: Annotated[str | None, Field(alias='signerName')] = None


class DownwardAPIProjection(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    items: list[DownwardAPIVolumeFile] | None = None


class EnvVar(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    name: str
    value: str | None = None
    value_from: Annotated[EnvVarSource | None, Field(alias='valueFrom')] = None


class EphemeralVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    volume_claim_template: Annotated[
        PersistentVolumeClaimTemplate | None, Field(alias='volumeClaimTemplate')
    ] = None


class Lifecycle(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    post_start: Annotated[LifecycleHandler | None, Field(alias='postStart')] = None
    pre_stop: Annotated[LifecycleHandler | None, Field(alias='preStop')] = None
    stop_signal: Annotated[str | None, Field(alias='stopSignal')] = None


class NodeAffinity(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[PreferredSchedulingTerm] | None,
        Field(alias='preferredDuringSchedulingIgnoredDuringExecution'),
    ] = None
    required_during_scheduling_ignored_during_execution: Annotated[
        NodeSelector | None,
        Field(alias='requiredDuringSchedulingIgnoredDuringExecution'),
    ] = None


class PodAffinity(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[WeightedPodAffinityTerm] | None,
        Field(alias='preferredDuringSchedulingIgnoredDuringExecution'),
    ] = None
    required_during_scheduling_ignored_during_execution: Annotated[
        list[PodAffinityTerm] | None,
        Field(alias='requiredDuringSchedulingIgnoredDuringExecution'),
    ] = None


class PodAntiAffinity(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    preferred_during_scheduling_ignored_during_execution: Annotated[
        list[WeightedPodAffinityTerm] | None,
        Field(alias='preferredDuringSchedulingIgnoredDuringExecution'),
    ] = None
    required_during_scheduling_ignored_during_execution: Annotated[
        list[PodAffinityTerm] | None,
        Field(alias='requiredDuringSchedulingIgnoredDuringExecution'),
    ] = None


class VolumeProjection(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    cluster_trust_bundle: Annotated[
        ClusterTrustBundleProjection | None, Field(alias='clusterTrustBundle')
    ] = None
    config_map: Annotated[ConfigMapProjection | None, Field(alias='configMap')] = None
    downward_api: Annotated[
        DownwardAPIProjection | None, Field(alias='downwardAPI')
    ] = None
    pod_certificate: Annotated[
        PodCertificateProjection | None, Field(alias='podCertificate')
    ] = None
    secret: SecretProjection | None = None
    service_account_token: Annotated[
        ServiceAccountTokenProjection | None, Field(alias='serviceAccountToken')
    ] = None


class Affinity(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    node_affinity: Annotated[NodeAffinity | None, Field(alias='nodeAffinity')] = None
    pod_affinity: Annotated[PodAffinity | None, Field(alias='podAffinity')] = None
    pod_anti_affinity: Annotated[
        PodAntiAffinity | None, Field(alias='podAntiAffinity')
    ] = None


class Container(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    args: list[str] | None = None
    command: list[str] | None = None
    env: list[EnvVar] | None = None
    env_from: Annotated[list[EnvFromSource] | None, Field(alias='envFrom')] = None
    image: str | None = None
    image_pull_policy: Annotated[str | None, Field(alias='imagePullPolicy')] = None
    lifecycle: Lifecycle | None = None
    liveness_probe: Annotated[Probe | None, Field(alias='livenessProbe')] = None
    name: str
    ports: list[ContainerPort] | None = None
    readiness_probe: Annotated[Probe | None, Field(alias='readinessProbe')] = None
    resize_policy: Annotated[
        list[ContainerResizePolicy] | None, Field(alias='resizePolicy')
    ] = None
    resources: ResourceRequirements | None = None
    restart_policy: Annotated[str | None, Field(alias='restartPolicy')] = None
    restart_policy_rules: Annotated[
        list[ContainerRestartRule] | None, Field(alias='restartPolicyRules')
    ] = None
    security_context: Annotated[
        SecurityContext | None, Field(alias='securityContext')
    ] = None
    startup_probe: Annotated[Probe | None, Field(alias='startupProbe')] = None
    stdin: bool | None = None
    stdin_once: Annotated[bool | None, Field(alias='stdinOnce')] = None
    termination_message_path: Annotated[
        str | None, Field(alias='terminationMessagePath')
    ] = None
    termination_message_policy: Annotated[
        str | None, Field(alias='terminationMessagePolicy')
    ] = None
    tty: bool | None = None
    volume_devices: Annotated[
        list[VolumeDevice] | None, Field(alias='volumeDevices')
    ] = None
    volume_mounts: Annotated[list[VolumeMount] | None, Field(alias='volumeMounts')] = (
        None
    )
    working_dir: Annotated[str | None, Field(alias='workingDir')] = None


class EphemeralContainer(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    args: list[str] | None = None
    command: list[str] | None = None
    env: list[EnvVar] | None = None
    env_from: Annotated[list[EnvFromSource] | None, Field(alias='envFrom')] = None
    image: str | None = None
    image_pull_policy: Annotated[str | None, Field(alias='imagePullPolicy')] = None
    lifecycle: Lifecycle | None = None
    liveness_probe: Annotated[Probe | None, Field(alias='livenessProbe')] = None
    name: str
    ports: list[ContainerPort] | None = None
    readiness_probe: Annotated[Probe | None, Field(alias='readinessProbe')] = None
    resize_policy: Annotated[
        list[ContainerResizePolicy] | None, Field(alias='resizePolicy')
    ] = None
    resources: ResourceRequirements | None = None
    restart_policy: Annotated[str | None, Field(alias='restartPolicy')] = None
    restart_policy_rules: Annotated[
        list[ContainerRestartRule] | None, Field(alias='restartPolicyRules')
    ] = None
    security_context: Annotated[
        SecurityContext | None, Field(alias='securityContext')
    ] = None
    startup_probe: Annotated[Probe | None, Field(alias='startupProbe')] = None
    stdin: bool | None = None
    stdin_once: Annotated[bool | None, Field(alias='stdinOnce')] = None
    target_container_name: Annotated[str | None, Field(alias='targetContainerName')] = (
        None
    )
    termination_message_path: Annotated[
        str | None, Field(alias='terminationMessagePath')
    ] = None
    termination_message_policy: Annotated[
        str | None, Field(alias='terminationMessagePolicy')
    ] = None
    tty: bool | None = None
    volume_devices: Annotated[
        list[VolumeDevice] | None, Field(alias='volumeDevices')
    ] = None
    volume_mounts: Annotated[list[VolumeMount] | None, Field(alias='volumeMounts')] = (
        None
    )
    working_dir: Annotated[str | None, Field(alias='workingDir')] = None


class ProjectedVolumeSource(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    default_mode: Annotated[int | None, Field(alias='defaultMode')] = None
    sources: list[VolumeProjection] | None = None


class Volume(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    aws_elastic_block_store: Annotated[
        AWSElasticBlockStoreVolumeSource | None, Field(alias='awsElasticBlockStore')
    ] = None
    azure_disk: Annotated[AzureDiskVolumeSource | None, Field(alias='azureDisk')] = None
    azure_file: Annotated[AzureFileVolumeSource | None, Field(alias='azureFile')] = None
    cephfs: CephFSVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    config_map: Annotated[ConfigMapVolumeSource | None, Field(alias='configMap')] = None
    csi: CSIVolumeSource | None = None
    downward_api: Annotated[
        DownwardAPIVolumeSource | None, Field(alias='downwardAPI')
    ] = None
    empty_dir: Annotated[EmptyDirVolumeSource | None, Field(alias='emptyDir')] = None
    ephemeral: EphemeralVolumeSource | None = None
    fc: FCVolumeSource | None = None
    flex_volume: Annotated[FlexVolumeSource | None, Field(alias='flexVolume')] = None
    flocker: FlockerVolumeSource | None = None
    gce_persistent_disk: Annotated[
        GCEPersistentDiskVolumeSource | None, Field(alias='gcePersistentDisk')
    ] = None
    git_repo: Annotated[GitRepoVolumeSource | None, Field(alias='gitRepo')] = None
    glusterfs: GlusterfsVolumeSource | None = None
    host_path: Annotated[HostPathVolumeSource | None, Field(alias='hostPath')] = None
    image: ImageVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    name: str
    nfs: NFSVolumeSource | None = None
    persistent_volume_claim: Annotated[
        PersistentVolumeClaimVolumeSource | None, Field(alias='persistentVolumeClaim')
    ] = None
    photon_persistent_disk: Annotated[
        PhotonPersistentDiskVolumeSource | None, Field(alias='photonPersistentDisk')
    ] = None
    portworx_volume: Annotated[
        PortworxVolumeSource | None, Field(alias='portworxVolume')
    ] = None
    projected: ProjectedVolumeSource | None = None
    quobyte: QuobyteVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    scale_io: Annotated[ScaleIOVolumeSource | None, Field(alias='scaleIO')] = None
    secret: SecretVolumeSource | None = None
    storageos: StorageOSVolumeSource | None = None
    vsphere_volume: Annotated[
        VsphereVirtualDiskVolumeSource | None, Field(alias='vsphereVolume')
    ] = None


class PodSpec(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    active_deadline_seconds: Annotated[
        int | None, Field(alias='activeDeadlineSeconds')
    ] = None
    affinity: Affinity | None = None
    automount_service_account_token: Annotated[
        bool | None, Field(alias='automountServiceAccountToken')
    ] = None
    containers: list[Container]
    dns_config: Annotated[PodDNSConfig | None, Field(alias='dnsConfig')] = None
    dns_policy: Annotated[str | None, Field(alias='dnsPolicy')] = None
    enable_service_links: Annotated[bool | None, Field(alias='enableServiceLinks')] = (
        None
    )
    ephemeral_containers: Annotated[
        list[EphemeralContainer] | None, Field(alias='ephemeralContainers')
    ] = None
    host_aliases: Annotated[list[HostAlias] | None, Field(alias='hostAliases')] = None
    host_ipc: Annotated[bool | None, Field(alias='hostIPC')] = None
    host_network: Annotated[bool | None, Field(alias='hostNetwork')] = None
    host_pid: Annotated[bool | None, Field(alias='hostPID')] = None
    host_users: Annotated[bool | None, Field(alias='hostUsers')] = None
    hostname: str | None = None
    hostname_override: Annotated[str | None, Field(alias='hostnameOverride')] = None
    image_pull_secrets: Annotated[
        list[LocalObjectReference] | None, Field(alias='imagePullSecrets')
    ] = None
    init_containers: Annotated[
        list[Container] | None, Field(alias='initContainers')
    ] = None
    node_name: Annotated[str | None, Field(alias='nodeName')] = None
    node_selector: Annotated[dict[str, str] | None, Field(alias='nodeSelector')] = None
    os: PodOS | None = None
    overhead: dict[str, int | float | str] | None = None
    preemption_policy: Annotated[str | None, Field(alias='preemptionPolicy')] = None
    priority: int | None = None
    priority_class_name: Annotated[str | None, Field(alias='priorityClassName')] = None
    readiness_gates: Annotated[
        list[PodReadinessGate] | None, Field(alias='readinessGates')
    ] = None
    resource_claims: Annotated[
        list[PodResourceClaim] | None, Field(alias='resourceClaims')
    ] = None
    resources: ResourceRequirements | None = None
    restart_policy: Annotated[str | None, Field(alias='restartPolicy')] = None
    runtime_class_name: Annotated[str | None, Field(alias='runtimeClassName')] = None
    scheduler_name: Annotated[str | None, Field(alias='schedulerName')] = None
    scheduling_gates: Annotated[
        list[PodSchedulingGate] | None, Field(alias='schedulingGates')
    ] = None
    security_context: Annotated[
        PodSecurityContext | None, Field(alias='securityContext')
    ] = None
    service_account: Annotated[str | None, Field(alias='serviceAccount')] = None
    service_account_name: Annotated[str | None, Field(alias='serviceAccountName')] = (
        None
    )
    set_hostname_as_fqdn: Annotated[bool | None, Field(alias='setHostnameAsFQDN')] = (
        None
    )
    share_process_namespace: Annotated[
        bool | None, Field(alias='shareProcessNamespace')
    ] = None
    subdomain: str | None = None
    termination_grace_period_seconds: Annotated[
        int | None, Field(alias='terminationGracePeriodSeconds')
    ] = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: Annotated[
        list[TopologySpreadConstraint] | None, Field(alias='topologySpreadConstraints')
    ] = None
    volumes: list[Volume] | None = None
    workload_ref: Annotated[WorkloadReference | None, Field(alias='workloadRef')] = None


class PodTemplateSpec(BaseModel):
    model_config = ConfigDict(
        extra='allow',
        populate_by_name=True,
    )
    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None
