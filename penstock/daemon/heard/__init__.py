"""Acts on what applications' SDKs report: which applications run, what each would gain, and who was throttled."""
