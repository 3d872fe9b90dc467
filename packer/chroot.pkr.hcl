# The same image without a boot: Ansible changes the files of a root that is mounted on this machine. For builders that have such a
# root, such as amazon-chroot or mmdebstrap. Needs root, and the collection community.general for its connection plugin.
#
#   packer build -var-file=node.pkrvars.hcl -var root=/mnt packer/chroot.pkr.hcl

variable "root" {
  type        = string
  description = "The folder where the root of the image is mounted."
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

source "null" "node" {
  communicator = "none"
}

build {
  sources = ["source.null.node"]

  # In a separate mount namespace, so that nothing stays mounted, however the build ends. Ansible copies its files to /run.
  provisioner "shell-local" {
    execute_command = ["unshare", "--mount", "/bin/sh", "-c", "{{.Vars}} {{.Script}}"]
    environment_vars = [
      "ROOT=${var.root}",
      "PLAYBOOK=${path.root}/node-image.yml",
      "PROFILES=${join(",", var.profiles)}",
      "NODE_VARIABLES=${jsonencode(merge(var.node_variables, { kubenode_target = "all" }))}",
      "ANSIBLE_REMOTE_TEMP=/run/ansible",
    ]
    inline = [
      "mount -t proc proc \"$ROOT/proc\"",
      "mount --rbind /dev \"$ROOT/dev\"",
      "mount -t tmpfs tmpfs \"$ROOT/run\"",
      "ansible-playbook --connection community.general.chroot --inventory \"$ROOT,\" --tags \"$PROFILES\" --extra-vars \"$NODE_VARIABLES\" \"$PLAYBOOK\"",
    ]
  }
}
