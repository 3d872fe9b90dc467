# An AMI whose nodes have the profiles from their first boot on.
#
#   packer build -var-file=node.pkrvars.hcl packer/amazon.pkr.hcl
#
# docs/images-packer.md describes the file of variables.

variable "region" {
  type    = string
  default = "eu-central-1"
}

variable "ami_name" {
  type    = string
  default = "kubenode"
}

variable "base_image" {
  type = map(string)
  default = {
    name  = "debian-12-amd64-*"
    owner = "136693071363"
  }
  description = "The base image: a pattern of its name, and the account that owns it. The newest is taken."
}

variable "ssh_username" {
  type        = string
  default     = "admin"
  description = "The account of the base image."
}

variable "instance_type" {
  type        = string
  default     = "t3.small"
  description = "The type of the instance on which the image is built."
}

variable "profiles" {
  type        = list(string)
  default     = ["eni_policy_routing"]
  description = "Which of the collection's profiles the nodes have."
}

variable "node_variables" {
  type = map(string)
  default = {
    eni_policy_routing_layout            = "aws_vpc_cni"
    eni_policy_routing_primary_interface = "ens5"
  }
  description = "Variables of the profiles' roles. Each value is text. The name of the primary interface depends on the instance type."
}

source "amazon-ebs" "node" {
  region                    = var.region
  instance_type             = var.instance_type
  ami_name                  = var.ami_name
  ssh_username              = var.ssh_username
  ssh_clear_authorized_keys = true # the image keeps no key of the build

  source_ami_filter {
    most_recent = true
    owners      = [var.base_image["owner"]]
    filters = {
      name                = var.base_image["name"]
      virtualization-type = "hvm"
    }
  }
}

build {
  sources = ["source.amazon-ebs.node"]

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
