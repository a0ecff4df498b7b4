"""Workers: enrollment, credentials, registry, GPUs, the worker API and the fleet's faces."""
