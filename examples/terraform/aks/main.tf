# The agent on a cluster of AKS: a namespace whose pods may be privileged, and one release of the chart for each agent.

terraform {
  required_version = ">= 1.3"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.0"
    }
    helm = {
      source  = "hashicorp/helm"
      version = ">= 3.0"
    }
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 2.30"
    }
  }
}

variable "cluster" {
  type        = string
  description = "The name of the cluster."
}

variable "resource_group" {
  type        = string
  description = "The resource group of the cluster."
}

variable "image" {
  type        = string
  description = "The repository of the agent's image."
  default     = "ghcr.io/kubenode/kubenode-agent"
}

provider "azurerm" {
  features {}
}

data "azurerm_kubernetes_cluster" "nodes" {
  name                = var.cluster
  resource_group_name = var.resource_group
}

locals {
  access = data.azurerm_kubernetes_cluster.nodes.kube_config[0]
}

provider "kubernetes" {
  host                   = local.access.host
  client_certificate     = base64decode(local.access.client_certificate)
  client_key             = base64decode(local.access.client_key)
  cluster_ca_certificate = base64decode(local.access.cluster_ca_certificate)
}

provider "helm" {
  kubernetes = {
    host                   = local.access.host
    client_certificate     = base64decode(local.access.client_certificate)
    client_key             = base64decode(local.access.client_key)
    cluster_ca_certificate = base64decode(local.access.cluster_ca_certificate)
  }
}

resource "kubernetes_namespace" "kubenode" {
  metadata {
    name = "kubenode-datapath"
    labels = {
      "pod-security.kubernetes.io/enforce" = "privileged"
    }
  }
}

resource "helm_release" "audit" {
  name      = "audit"
  namespace = kubernetes_namespace.kubenode.metadata[0].name
  chart     = "${path.module}/../../../deploy/chart"
  set       = [{ name = "image.repository", value = var.image }]
}

resource "helm_release" "dual_stack" {
  name      = "aks-dual-stack"
  namespace = kubernetes_namespace.kubenode.metadata[0].name
  chart     = "${path.module}/../../../deploy/chart"
  values    = [file("${path.module}/aks-dual-stack.yaml")]
  set       = [{ name = "image.repository", value = var.image }]
}
