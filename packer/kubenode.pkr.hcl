# A disk image whose nodes have the profiles from their first boot on: a cloud image is booted once, by qemu, for Ansible.
#
#   packer build -var-file=node.pkrvars.hcl packer/kubenode.pkr.hcl
#
# docs/images-packer.md describes the file of variables.

variable "base_image" {
  type        = string
  description = "The base image, a path or a URL. It has an account of root or of a sudoer that a key opens."
}

variable "base_image_checksum" {
  type        = string
  default     = "none"
  description = "The checksum of the base image, as Packer's iso_checksum, for example sha256:..., or file:URL."
}

variable "format" {
  type        = string
  default     = "qcow2"
  description = "The format of the base image and of the new image: qcow2 or raw."
}

variable "profiles" {
  type        = list(string)
  default     = ["aks_dual_stack", "eni_policy_routing", "cilium_migration"]
  description = "Which of the collection's profiles the nodes have: some of these, or symmetric_routing."
}

variable "node_variables" {
  type        = map(string)
  default     = {}
  description = "Variables of the profiles' roles. Each value is text."
}

variable "seed" {
  type        = list(string)
  default     = []
  description = "The files meta-data and user-data, which give cloud-init the public key of the account."
}

variable "ssh_username" {
  type    = string
  default = "root"
}

variable "ssh_private_key_file" {
  type        = string
  description = "The private key of the account. The template adds no key, so it leaves none on the image."
}

variable "accelerator" {
  type        = string
  default     = "kvm"
  description = "kvm, or tcg on a machine without KVM; a build then takes minutes instead of seconds."
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
    # A boot empties this folder. The builder does not know the host key, and does not record it.
    ansible_env_vars = [
      "ANSIBLE_REMOTE_TEMP=/dev/shm/ansible",
      "ANSIBLE_PIPELINING=true",
      "ANSIBLE_SSH_ARGS=-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=/dev/null",
    ]
  }
}
