# A disk image whose nodes have the profiles from their first boot on: a cloud image is booted once, by qemu, for Ansible.
#
#   packer build -var-file=node.pkrvars.hcl packer/kubenode.pkr.hcl
#
# docs/images-packer.md tells what is in the file of variables.

variable "base_image" {
  type        = string
  description = "The image to start from, a path or a URL. Root's or a sudoer's account on it is opened by a key."
}

variable "base_image_checksum" {
  type        = string
  default     = "none"
  description = "As Packer's iso_checksum, for example sha256:..., or file:URL."
}

variable "format" {
  type        = string
  default     = "qcow2"
  description = "Of the image to start from, and of the new one: qcow2 or raw."
}

variable "profiles" {
  type        = list(string)
  default     = ["aks_dual_stack", "eni_policy_routing", "cilium_migration"]
  description = "Which of the collection's profiles the nodes have."
}

variable "node_variables" {
  type        = map(string)
  default     = {}
  description = "Variables of the profiles' roles. All of them take text."
}

variable "seed" {
  type        = list(string)
  default     = []
  description = "The files meta-data and user-data, which tell cloud-init whose key opens the account."
}

variable "ssh_username" {
  type    = string
  default = "root"
}

variable "ssh_private_key_file" {
  type        = string
  description = "The key that opens it. The template adds none, and so none of its own is left on the image."
}

variable "accelerator" {
  type        = string
  default     = "kvm"
  description = "tcg where there is no KVM; a build then takes minutes where it took seconds."
}

variable "memory" {
  type    = number
  default = 1024
}

variable "qemuargs" {
  type        = list(list(string))
  default     = []
  description = "Arguments of qemu in place of Packer's, for example a kernel: [[\"-kernel\", \"vmlinuz\"], ...]."
}

variable "output_directory" {
  type    = string
  default = "node-image"
}

source "qemu" "node" {
  iso_url              = var.base_image
  iso_checksum         = var.base_image_checksum
  disk_image           = true
  skip_resize_disk     = true
  format               = var.format
  cd_files             = var.seed
  cd_label             = "cidata"
  output_directory     = var.output_directory
  vm_name              = "node.${var.format}"
  accelerator          = var.accelerator
  cpus                 = 2
  memory               = var.memory
  headless             = true
  qemuargs             = var.qemuargs
  boot_wait            = "-1s"
  ssh_username         = var.ssh_username
  ssh_private_key_file = var.ssh_private_key_file
  ssh_timeout          = "10m"
  shutdown_command     = var.ssh_username == "root" ? "systemctl poweroff" : "sudo systemctl poweroff"
}

build {
  sources = ["source.qemu.node"]

  provisioner "ansible" {
    playbook_file   = "${path.root}/node-image.yml"
    groups          = ["nodes"]
    use_proxy       = false
    user            = var.ssh_username
    extra_arguments = ["--tags", join(",", var.profiles), "--extra-vars", jsonencode(var.node_variables)]
    # What Ansible copies there is gone with the boot. The host key is not known to the builder, and it is to forget it.
    ansible_env_vars = [
      "ANSIBLE_REMOTE_TEMP=/dev/shm/ansible",
      "ANSIBLE_PIPELINING=true",
      "ANSIBLE_SSH_ARGS=-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=/dev/null",
    ]
  }
}
