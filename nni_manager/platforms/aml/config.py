"""The config section of `aml` (Azure Machine Learning). Values arrive canonical, see `platform_kit.section_model`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nni_manager.platform_kit.section_model import DEFAULT_IMAGE, TRIAL, FirstFormat, PlatformSection, marked

_PUBLIC = "https://management.azure.com"


class AmlConfig(PlatformSection):
    """The fields of ``trainingService: {platform: aml, …}``."""

    platform: Literal["aml"] = Field(default="aml", description="Always `aml`.")
    subscription_id: str = Field(min_length=1, description="Id of the Azure subscription.")
    resource_group: str = Field(min_length=1, description="Name of the resource group.")
    workspace_name: str = Field(min_length=1, description="Name of the workspace.")
    compute_target: str = Field(min_length=1, description="Name of the compute cluster.")
    docker_image: str = Field(default=DEFAULT_IMAGE, min_length=1, description="Image of the container.")
    max_trial_number_per_gpu: int = Field(default=1, gt=0, description="Maximum number of trials that share a GPU.")
    use_active_gpu: bool = Field(default=False, description="Use GPUs that other processes use.")
    job_timeout: int | None = marked(
        "Time after which Azure ML ends a job, in minutes. Default: unlimited.",
        default=None,
        format="whole-number",
        gt=0,
    )
    identity: Literal["UserIdentity", "Managed", "AMLToken"] | None = Field(
        default=None,
        description="Identity with which a job accesses the workspace's datastores: `UserIdentity` (the submitter's), "
        "`Managed` (the cluster's) or `AMLToken`. Set it if datastores require an identity. Default: not sent.",
    )
    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^/]+$",
        description="Address of Azure Resource Manager: `https://management.usgovcloudapi.net` or "
        "`https://management.chinacloudapi.cn` for sovereign clouds. Default: the public cloud's.",
    )
    authority: str | None = Field(
        default=None,
        min_length=1,
        description="Host that issues tokens, such as `login.microsoftonline.us`. Default: the public cloud's.",
    )
    storage_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^/]+",
        description="Address of the blob service of the workspace's storage account, if private. Default: the "
        "account's.",
    )

    @property
    def address(self) -> str:
        """The address of Azure Resource Manager."""
        return self.endpoint or _PUBLIC

    @property
    def resource(self) -> str:
        """The workspace's id."""
        return (
            f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"
            f"/providers/Microsoft.MachineLearningServices/workspaces/{self.workspace_name}"
        )


#: The section in NNI's first format.
FIRST_FORMAT = FirstFormat(
    fields={
        **TRIAL,
        "trial.image": "dockerImage",
        "amlConfig.subscriptionId": "subscriptionId",
        "amlConfig.resourceGroup": "resourceGroup",
        "amlConfig.workspaceName": "workspaceName",
        "amlConfig.computeTarget": "computeTarget",
        "amlConfig.maxTrialNumPerGpu": "maxTrialNumberPerGpu",
        "amlConfig.useActiveGpu": "useActiveGpu",
    },
    required=("trial.codeDir", "trial.command", "trial.image", "amlConfig"),
    ours=("useActiveGpu",),
)
