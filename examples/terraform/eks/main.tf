# A managed node group of EKS whose nodes register with a taint. The agent removes it from a node that it has converged, so that no
# ordinary pod comes before.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
    helm = {
      source  = "hashicorp/helm"
      version = ">= 3.0"
    }
  }
}

variable "cluster" {
  type        = string
  description = "The name of the cluster."
}

variable "node_role_arn" {
  type        = string
  description = "The role of the nodes."
}

variable "subnet_ids" {
  type        = list(string)
  description = "The subnets of the nodes."
}

variable "image" {
  type        = string
  description = "The repository of the agent's image."
  default     = "ghcr.io/kubenode/kubenode-agent"
}

data "aws_eks_cluster" "nodes" {
  name = var.cluster
}

data "aws_eks_cluster_auth" "nodes" {
  name = var.cluster
}

provider "helm" {
  kubernetes = {
    host                   = data.aws_eks_cluster.nodes.endpoint
    cluster_ca_certificate = base64decode(data.aws_eks_cluster.nodes.certificate_authority[0].data)
    token                  = data.aws_eks_cluster_auth.nodes.token
  }
}

resource "aws_eks_node_group" "workers" {
  cluster_name    = var.cluster
  node_group_name = "workers"
  node_role_arn   = var.node_role_arn
  subnet_ids      = var.subnet_ids
  ami_type        = "AL2023_x86_64_STANDARD"
  instance_types  = ["m6i.large"]

  scaling_config {
    desired_size = 3
    max_size     = 6
    min_size     = 3
  }

  taint {
    key    = "kubenode.datapath/not-ready"
    effect = "NO_SCHEDULE"
  }

  # Ordinary pods, such as CoreDNS, start after the agent has removed the taint.
  depends_on = [helm_release.eni_policy_routing]
}

# The namespace exists: kubectl apply -k deploy/kustomize/namespace. The agent's pods come with the nodes, so nothing waits for them here.
resource "helm_release" "eni_policy_routing" {
  name      = "eni-policy-routing"
  namespace = "kubenode-datapath"
  chart     = "${path.module}/../../../deploy/chart"
  values    = [file("${path.module}/eni-policy-routing.yaml")]
  set       = [{ name = "image.repository", value = var.image }]
  wait      = false
}
