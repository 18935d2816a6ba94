# A router's configuration as a resource of Terraform, with what is built into it and quiverctl.
#
#   terraform init && terraform plan && terraform apply
#
# `terraform plan` shows how the document differs from the one that was applied last, and what the router itself says would change.

terraform {
  required_version = ">= 1.4"
}

variable "quiverctl" {
  type    = string
  default = "quiverctl"
}

variable "loopback_address" {
  type    = string
  default = "10.255.0.1/32"
}

variable "dropped" {
  type        = list(string)
  default     = ["192.0.2.0/24", "198.51.100.0/24"]
  description = "Networks that this router drops."
}

locals {
  own = ["interfaces/loop0", "routes/0"]
  # JSON is YAML.
  document = jsonencode({
    own = local.own
    interfaces = {
      loop0 = { loopback = {}, addresses = [var.loopback_address], up = true }
    }
    routes = { "0" = { for network in var.dropped : network => [{ kind = "drop" }] } }
  })
  nothing = jsonencode({ own = local.own })
}

# The parts that this module owns: they are emptied when it is destroyed.
resource "terraform_data" "parts" {
  input = { quiverctl = var.quiverctl, nothing = local.nothing }

  provisioner "local-exec" {
    when        = destroy
    command     = "printf %s \"$DOCUMENT\" | \"$QUIVERCTL\" apply - --comment terraform"
    environment = { DOCUMENT = self.input.nothing, QUIVERCTL = self.input.quiverctl }
  }
}

# What they hold. A changed document replaces this resource, and the router changes only what differs.
resource "terraform_data" "router" {
  depends_on       = [terraform_data.parts]
  triggers_replace = [local.document]

  provisioner "local-exec" {
    command     = "printf %s \"$DOCUMENT\" | \"$QUIVERCTL\" apply - --comment terraform"
    environment = { DOCUMENT = local.document, QUIVERCTL = var.quiverctl }
  }
}
