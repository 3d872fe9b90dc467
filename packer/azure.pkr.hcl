# A managed image of Azure whose nodes have the profiles from their first boot on.
#
#   packer build -var-file=node.pkrvars.hcl packer/azure.pkr.hcl
#
# docs/images-packer.md describes the file of variables. AKS starts no nodes from custom images: this is for self-managed clusters.

variable "location" {
  type    = string
  default = "westeurope"
}

variable "image_resource_group" {
  type        = string
  description = "The resource group of the new image. It exists."
}

variable "image_name" {
  type    = string
  default = "kubenode"
}

variable "base_image" {
  type = map(string)
  default = {
    publisher = "Canonical"
    offer     = "ubuntu-24_04-lts"
    sku       = "server"
  }
  description = "The base image in the marketplace: its publisher, offer and SKU."
}

variable "vm_size" {
  type        = string
  default     = "Standard_D2s_v5"
  description = "The size of the VM on which the image is built."
}

variable "profiles" {
  type        = list(string)
  default     = ["aks_dual_stack", "cilium_migration"]
  description = "Which of the collection's profiles the nodes have."
}

variable "node_variables" {
  type        = map(string)
  default     = {}
  description = "Variables of the profiles' roles. Each value is text."
}

source "azure-arm" "node" {
  use_azure_cli_auth                = true
  location                          = var.location
  vm_size                           = var.vm_size
  os_type                           = "Linux"
  image_publisher                   = var.base_image["publisher"]
  image_offer                       = var.base_image["offer"]
  image_sku                         = var.base_image["sku"]
  managed_image_resource_group_name = var.image_resource_group
  managed_image_name                = var.image_name
  ssh_username                      = "packer"
}

build {
  sources = ["source.azure-arm.node"]

  provisioner "ansible" {
    playbook_file   = "${path.root}/node-image.yml"
    groups          = ["nodes"]
    use_proxy       = false
    user            = "packer"
    extra_arguments = ["--tags", join(",", var.profiles), "--extra-vars", jsonencode(var.node_variables)]
    # A boot empties this folder. The builder does not know the host key, and does not record it.
    ansible_env_vars = [
      "ANSIBLE_REMOTE_TEMP=/dev/shm/ansible",
      "ANSIBLE_PIPELINING=true",
      "ANSIBLE_SSH_ARGS=-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=/dev/null",
    ]
  }

  # Removes the account of the build, and what a boot leaves.
  provisioner "shell" {
    execute_command = "sudo sh -c '{{ .Vars }} {{ .Path }}'"
    inline          = ["waagent -force -deprovision+user"]
  }
}
