"""Model families: one file per `model_type`, over shared layers."""
