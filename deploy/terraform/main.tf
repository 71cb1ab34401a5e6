# What penstock needs in an account: a bucket for its probes, and a role for hosts that may use it.
# Queues are not made here: probes make their own, whose names begin with penstock-probe, and remove them.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "bucket_name" {
  description = "Of the bucket that probes write to; it is made. In S3 such names are shared by all accounts."
  type        = string
}

variable "watched_queue_name" {
  description = "Of the application's queue that is watched, whose attributes alone are read."
  type        = string
  default     = "penstock-watches-none"
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

locals {
  queues = "arn:${data.aws_partition.current.partition}:sqs:*:${data.aws_caller_identity.current.account_id}"
}

resource "aws_s3_bucket" "probes" {
  bucket = var.bucket_name
}

resource "aws_s3_bucket_public_access_block" "probes" {
  bucket                  = aws_s3_bucket.probes.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# penstock removes what it makes; this is for a host that is gone for good.
resource "aws_s3_bucket_lifecycle_configuration" "probes" {
  bucket = aws_s3_bucket.probes.id

  rule {
    id     = "penstock-probes"
    status = "Enabled"

    filter {
      prefix = "penstock-probe/"
    }

    expiration {
      days = 7
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

resource "aws_iam_policy" "probes" {
  name_prefix = "penstock-"
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "ProbeUploads"
        Effect   = "Allow"
        Action   = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
        Resource = "${aws_s3_bucket.probes.arn}/penstock-probe/*"
      },
      {
        Sid      = "ProbeDownloads"
        Effect   = "Allow"
        Action   = ["s3:GetObject"]
        Resource = "${aws_s3_bucket.probes.arn}/penstock-probe/*"
      },
      {
        Sid      = "FindLeftovers"
        Effect   = "Allow"
        Action   = ["s3:ListBucket", "s3:ListBucketMultipartUploads"]
        Resource = aws_s3_bucket.probes.arn
      },
      {
        Sid    = "ProbeQueues"
        Effect = "Allow"
        Action = [
          "sqs:CreateQueue",
          "sqs:DeleteQueue",
          "sqs:GetQueueUrl",
          "sqs:GetQueueAttributes",
          "sqs:SendMessage",
          "sqs:ReceiveMessage",
          "sqs:DeleteMessage",
        ]
        Resource = "${local.queues}:penstock-probe*"
      },
      {
        Sid      = "WatchQueue"
        Effect   = "Allow"
        Action   = ["sqs:GetQueueUrl", "sqs:GetQueueAttributes"]
        Resource = "${local.queues}:${var.watched_queue_name}"
      },
      {
        Sid      = "FindQueues"
        Effect   = "Allow"
        Action   = ["sqs:ListQueues"]
        Resource = "*"
      },
    ]
  })
}

resource "aws_iam_role" "probes" {
  name_prefix = "penstock-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.${data.aws_partition.current.dns_suffix}" }
      Action    = ["sts:AssumeRole"]
    }]
  })
}

resource "aws_iam_role_policy_attachment" "probes" {
  role       = aws_iam_role.probes.name
  policy_arn = aws_iam_policy.probes.arn
}

resource "aws_iam_instance_profile" "probes" {
  name_prefix = "penstock-"
  role        = aws_iam_role.probes.name
}

output "policy_arn" {
  description = "For roles that hosts have already."
  value       = aws_iam_policy.probes.arn
}

output "instance_profile" {
  description = "For hosts that have none."
  value       = aws_iam_instance_profile.probes.name
}
